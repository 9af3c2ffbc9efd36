-- expect: memory
function on_enqueue(msg)
  local t = {}
  for i = 1, 100 do t[i] = { [16000] = i, [60000000] = i } end
end
