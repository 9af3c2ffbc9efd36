-- expect: error
function on_enqueue(msg)
  error({ "not", "text" })
end
