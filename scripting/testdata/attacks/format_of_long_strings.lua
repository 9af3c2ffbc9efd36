-- expect: limit
function on_enqueue(msg)
  local s = ("x"):rep(100000)
  return { fairness_key = string.format("%s%s%s%s%s%s%s%s%s%s%q", s, s, s, s, s, s, s, s, s, s, s) }
end
