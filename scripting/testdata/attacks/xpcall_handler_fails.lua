-- expect: limit
function on_enqueue(msg)
  local function handler(e) error(e) end
  while true do xpcall(function() error("x") end, handler) end
end
