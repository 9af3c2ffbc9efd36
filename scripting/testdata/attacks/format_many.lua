-- expect: error
function on_enqueue(msg)
  local s = string.format(("%99d"):rep(300), unpack({}, 1, 1000))
  return { fairness_key = s }
end
