-- expect: error
function on_enqueue(msg)
  setmetatable(_G, { __index = function(t, k) return k end })
end
