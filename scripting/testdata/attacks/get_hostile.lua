-- expect: limit
function on_enqueue(msg)
  while true do local v = fila.get(("x"):rep(100000)) end
end
