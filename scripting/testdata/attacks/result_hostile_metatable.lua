-- expect: ok
function on_enqueue(msg)
  return setmetatable({}, { __index = function() while true do end end, __pairs = error, __len = error })
end
