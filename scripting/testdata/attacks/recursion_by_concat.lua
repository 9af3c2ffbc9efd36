-- expect: error
function on_enqueue(msg)
  local t = setmetatable({}, { __concat = function(a, b) return a .. b end })
  return { fairness_key = t .. "x" }
end
