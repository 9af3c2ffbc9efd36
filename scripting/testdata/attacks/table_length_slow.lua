-- expect: limit
function on_enqueue(msg)
  local t = {}
  for i = 1, 16000 do t[i] = true end
  for i = 1, 16000 do t[i] = nil end
  while true do local n = #t end
end
