-- expect: limit
function on_enqueue(msg)
  return { fairness_key = tostring(("a"):rep(30):find(("a*"):rep(30) .. "b")) }
end
