-- expect: error
function on_enqueue(msg)
  table.insert(table, "x")
end
