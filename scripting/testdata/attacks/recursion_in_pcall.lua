-- expect: limit
function on_enqueue(msg)
  local function f() pcall(f) f() end
  while true do pcall(f) end
end
