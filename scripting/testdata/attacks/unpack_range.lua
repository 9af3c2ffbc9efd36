-- expect: error
function on_enqueue(msg)
  return { fairness_key = tostring(unpack({}, 1, 1e8)) }
end
