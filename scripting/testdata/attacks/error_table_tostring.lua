-- expect: error
function on_enqueue(msg)
  error(setmetatable({}, { __tostring = function() while true do end end }))
end
