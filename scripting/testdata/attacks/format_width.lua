-- expect: error
function on_enqueue(msg)
  return { fairness_key = string.format("%99999s", "x") }
end
