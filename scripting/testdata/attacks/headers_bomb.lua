-- expect: memory
function on_enqueue(msg)
  local t = {}
  while true do for k, v in pairs(msg.headers) do t[#t + 1] = k .. v end end
end
