-- expect: ok
function on_enqueue(msg)
  local function deep(n)
    if n == 0 then error() end
    return pcall(deep, n - 1)
  end
  deep(50)
end
