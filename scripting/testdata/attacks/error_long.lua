-- expect: error
function on_enqueue(msg)
  error(("x"):rep(120000))
end
