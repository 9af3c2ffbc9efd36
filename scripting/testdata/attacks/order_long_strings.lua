-- expect: limit
function on_enqueue(msg)
  local a, b = ("x"):rep(120000), ("x"):rep(120000)
  while a <= b do end
end
