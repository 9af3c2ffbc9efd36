-- expect: limit
function on_enqueue(msg)
  return { fairness_key = tostring(("("):rep(120000):find("%b()")) }
end
