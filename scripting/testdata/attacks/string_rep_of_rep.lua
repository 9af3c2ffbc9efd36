-- expect: memory
function on_enqueue(msg)
  return { fairness_key = ("x"):rep(1000):rep(1000):rep(1000) }
end
