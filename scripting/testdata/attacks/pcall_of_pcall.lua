-- expect: limit
function on_enqueue(msg)
  local function deep(n)
    if n == 0 then while true do end end
    return pcall(deep, n - 1)
  end
  deep(3)
  return { fairness_key = "escaped" }
end
