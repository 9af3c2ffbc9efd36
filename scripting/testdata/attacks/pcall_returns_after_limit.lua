-- expect: limit
function on_enqueue(msg)
  pcall(function() while true do end end)
  return { fairness_key = "escaped" }
end
