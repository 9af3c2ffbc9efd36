-- expect: error
function on_enqueue(msg)
  function fila.get() return "mine" end
end
