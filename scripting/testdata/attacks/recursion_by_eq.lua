-- expect: error
function on_enqueue(msg)
  local mt = {}
  mt.__eq = function(a, b) return a == b end
  return { fairness_key = tostring(setmetatable({}, mt) == setmetatable({}, mt)) }
end
