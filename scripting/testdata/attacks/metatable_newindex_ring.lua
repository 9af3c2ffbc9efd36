-- expect: error
function on_enqueue(msg)
  local a, b = {}, {}
  setmetatable(a, { __newindex = b })
  setmetatable(b, { __newindex = a })
  a.x = 1
end
