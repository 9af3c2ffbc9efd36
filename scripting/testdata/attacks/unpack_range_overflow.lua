-- expect: error
function on_enqueue(msg)
  return { fairness_key = tostring(unpack({}, -2 ^ 62, 2 ^ 62)) }
end
