-- expect: memory
function on_enqueue(msg)
  local f
  while true do
    local g = f
    f = function() return g end
  end
end
