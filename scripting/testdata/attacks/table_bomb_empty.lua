-- expect: memory
function on_enqueue(msg)
  local t = {}
  for i = 1, 16000 do t[i] = {} end
  for i = 1, 16000 do t[i].x = 1 end
end
