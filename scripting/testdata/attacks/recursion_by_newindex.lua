-- expect: error
function on_enqueue(msg)
  local t = {}
  setmetatable(t, { __newindex = function(t, k, v) t[k] = v end })
  t.a = 1
end
