-- expect: error
function on_enqueue(msg)
  error("x", 1e300)
end
