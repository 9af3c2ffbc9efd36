-- expect: limit
function on_enqueue(msg)
  return { fairness_key = (("a"):rep(60):gsub(("[ab]*"):rep(25) .. "c", "")) }
end
