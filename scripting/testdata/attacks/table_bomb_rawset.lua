-- expect: memory
function on_enqueue(msg)
  local t = {}
  for i = 1, 1e9 do rawset(t, -i, i) end
end
