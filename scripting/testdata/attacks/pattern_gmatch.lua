-- expect: limit
function on_enqueue(msg)
  for w in ("a"):rep(60):gmatch(("a-"):rep(30) .. "b") do return { fairness_key = w } end
end
