-- expect: limit
function on_enqueue(msg)
  for i = 1, math.huge do end
end
