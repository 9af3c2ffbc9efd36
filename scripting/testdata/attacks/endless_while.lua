-- expect: limit
function on_enqueue(msg)
  while true do end
end
