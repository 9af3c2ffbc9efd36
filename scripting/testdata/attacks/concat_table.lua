-- expect: memory
function on_enqueue(msg)
  local t = {}
  for i = 1, 100 do t[i] = "" end
  return { fairness_key = table.concat(t, ("x"):rep(100000)) }
end
