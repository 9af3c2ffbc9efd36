-- expect: limit
function on_enqueue(msg)
  local t = {}
  for i = 1, 2000 do t[-i] = true end
  for i = 1, 1999 do t[-i] = nil end
  while true do next(t) end
end
