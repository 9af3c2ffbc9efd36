-- expect: error
function on_enqueue(msg)
  for i = 1, 100 do setmetatable({}, { __gc = function() while true do end end }) end
  error(collectgarbage and "there" or "absent")
end
