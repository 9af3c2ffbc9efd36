-- expect: error
function on_enqueue(msg)
  local function f() return f() end
  f()
end
