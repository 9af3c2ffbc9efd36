-- expect: limit
function on_enqueue(msg)
  return { fairness_key = (("x"):rep(10000):gsub(".", "%0" .. ("%0"):rep(500))) }
end
