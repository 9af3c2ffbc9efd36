-- expect: error
function on_enqueue(msg)
  msg.fairness_key = "mine"
end
