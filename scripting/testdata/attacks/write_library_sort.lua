-- expect: error
function on_enqueue(msg)
  table.sort(math)
end
