-- expect: memory
function on_enqueue(msg)
  local s = ("x"):rep(1000)
  return { fairness_key = (s:gsub(".", function() return s end)) }
end
