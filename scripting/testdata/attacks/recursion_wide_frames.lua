-- expect: error
function on_enqueue(msg)
  local function f(...)
    local a, b, c, d, e, g, h = ..., 1, 2, 3, 4, 5, 6
    return f(a, b, c, d, e, g, h, ...)
  end
  f(1)
end
