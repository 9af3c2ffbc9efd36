-- expect: limit
function on_enqueue(msg)
  local s, t = ("x"):rep(120000), {}
  while true do local v = t[s] end
end
