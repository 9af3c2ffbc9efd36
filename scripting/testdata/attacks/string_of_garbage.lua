-- expect: memory
function on_enqueue(msg)
  local s = ("x"):rep(1000)
  while true do local t = s .. "y" end
end
