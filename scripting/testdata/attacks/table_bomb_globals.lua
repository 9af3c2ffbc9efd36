-- expect: memory
function on_enqueue(msg)
  for i = 1, 1e9 do _G["g" .. i] = i end
end
