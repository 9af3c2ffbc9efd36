-- expect: limit
function on_enqueue(msg)
  repeat until false
end
