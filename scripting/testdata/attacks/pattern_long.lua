-- expect: error
function on_enqueue(msg)
  return { fairness_key = tostring(("a"):match(("a"):rep(100000))) }
end
