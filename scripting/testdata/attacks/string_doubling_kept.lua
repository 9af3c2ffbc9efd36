-- expect: memory
function on_enqueue(msg)
  local t, s = {}, "x"
  for i = 1, 1000 do s = s .. "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy" t[i] = s end
  return { fairness_key = "not kept" }
end
