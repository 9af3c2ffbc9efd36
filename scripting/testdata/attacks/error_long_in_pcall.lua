-- expect: limit
function on_enqueue(msg)
  local s, n = ("x"):rep(120000), nil
  while true do pcall(function() return n[s] end) end
end
