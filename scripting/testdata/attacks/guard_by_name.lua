-- expect: load
function on_enqueue(msg)
  return ("\000fila charge")
end
