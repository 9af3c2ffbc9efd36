-- expect: error
function on_enqueue(msg)
  error(nil)
end
