-- expect: error
function on_enqueue(msg)
  local mt = getmetatable("")
  mt.__index = function() while true do end end
end
