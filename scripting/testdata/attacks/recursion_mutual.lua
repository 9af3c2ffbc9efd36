-- expect: error
function on_enqueue(msg)
  local f, g
  function f(n) return g(n + 1) + 1 end
  function g(n) return f(n + 1) + 1 end
  f(0)
end
