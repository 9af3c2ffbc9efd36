-- expect: limit
function on_enqueue(msg)
  local t = {}
  while true do table.insert(t, 1, {}) end
end
