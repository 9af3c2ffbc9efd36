-- expect: memory
function on_enqueue(msg)
  return { fairness_key = ("xxxxxxxx"):rep(2 ^ 61) }
end
