-- expect: memory
function on_enqueue(msg)
  local t = setmetatable({}, { __tostring = function() return ("x"):rep(1e8) end })
  return { fairness_key = string.format("%s", t) }
end
