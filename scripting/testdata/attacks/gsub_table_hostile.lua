-- expect: limit
function on_enqueue(msg)
  local t = setmetatable({}, { __index = function() while true do end end })
  return { fairness_key = (("abc"):gsub(".", t)) }
end
