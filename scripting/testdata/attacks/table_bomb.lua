-- expect: limit
function on_enqueue(msg)
  local t = {}
  for i = 1, 1e9 do t[i] = i * 1.5 t[-i] = i end
end
