-- expect: limit
function on_enqueue(msg)
  local t, x = {}, 0.5
  for i = 1, 1e9 do
    for j = 1, 31 do x = x + 1 end
    local y = x + 1
    t[i] = function() return y end
  end
end
