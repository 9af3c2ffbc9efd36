-- expect: error
function on_enqueue(msg)
  local t = {}
  setmetatable(t, { __call = t })
  t()
end
