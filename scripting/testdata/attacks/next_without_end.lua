-- expect: limit
function on_enqueue(msg)
  local t = { a = 1, b = 2 }
  local k
  while true do k = next(t, "zzz") end
end
