-- expect: error
function on_enqueue(msg)
  return { fairness_key = tostring(fila.split((","):rep(100000), ",")) }
end
