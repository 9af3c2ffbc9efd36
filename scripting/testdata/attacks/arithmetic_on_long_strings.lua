-- expect: limit
function on_enqueue(msg)
  local s = ("0"):rep(120000)
  while true do local n = s + 1 end
end
