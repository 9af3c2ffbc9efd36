-- expect: limit
function on_enqueue(msg)
  return { fairness_key = tostring(("a"):rep(40):match(("a?"):rep(40) .. ("a"):rep(40) .. "b")) }
end
