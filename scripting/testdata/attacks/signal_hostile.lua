-- expect: limit
function on_enqueue(msg)
  while true do local v = fila.signal(("x"):rep(30000), "failed") end
end
