-- expect: memory
function on_enqueue(msg)
  local t = {}
  t[60000000] = 1
  for i = 1, 100 do local u = {} u[16000] = i t[i] = u end
end
