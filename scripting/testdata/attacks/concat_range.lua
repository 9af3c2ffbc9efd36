-- expect: error
function on_enqueue(msg)
  return { fairness_key = table.concat({}, "x", 1, 2 ^ 53) }
end
