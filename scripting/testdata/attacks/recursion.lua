-- expect: error
function on_enqueue(msg)
  local function f() return 1 + f() end
  f()
end
