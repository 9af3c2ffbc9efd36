-- expect: error
function on_enqueue(msg)
  local t = { 3, 1, 2, 5, 4, 9, 8, 7, 6, 10, 12, 11, 13, 15, 14 }
  table.sort(t, function(a, b) for i = 1, #t do t[i] = nil end return a < b end)
  error("still here")
end
