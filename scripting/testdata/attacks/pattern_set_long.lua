-- expect: limit
function on_enqueue(msg)
  return { fairness_key = tostring(("a"):rep(120000):find("[" .. ("b-c"):rep(300) .. "]")) }
end
