-- expect: error
function on_enqueue(msg)
  local t = {}
  for i = 1, 1000 do t[i] = "k" .. i end
  return { throttle_keys = t }
end
