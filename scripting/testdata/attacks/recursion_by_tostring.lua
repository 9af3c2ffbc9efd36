-- expect: error
function on_enqueue(msg)
  local t = setmetatable({}, { __tostring = function(t) return tostring(t) end })
  return { fairness_key = tostring(t) }
end
