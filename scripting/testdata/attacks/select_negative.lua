-- expect: error
function on_enqueue(msg)
  return { fairness_key = tostring(select(-5, 1, 2)) }
end
