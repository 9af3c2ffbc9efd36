-- expect: memory
function on_enqueue(msg)
  local t = {}
  for i = 1, 1000 do t[i] = i end
  local all = {}
  for i = 1, 1e6 do all[i] = { unpack(t) } end
end
