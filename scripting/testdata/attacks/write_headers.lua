-- expect: error
function on_enqueue(msg)
  msg.headers.tenant = "mine"
end
