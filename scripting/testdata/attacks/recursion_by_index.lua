-- expect: error
function on_enqueue(msg)
  local t = {}
  setmetatable(t, { __index = function(t, k) return t[k .. "x"] end })
  return t.a
end
