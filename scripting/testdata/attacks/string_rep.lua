-- expect: memory
function on_enqueue(msg)
  return { fairness_key = ("x"):rep(1e9) }
end
