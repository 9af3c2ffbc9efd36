-- expect: error
function on_enqueue(msg)
  rawset(msg, "fairness_key", "mine")
end
