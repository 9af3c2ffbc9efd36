-- expect: limit
function on_enqueue(msg)
  return { fairness_key = tostring(("a"):rep(5000):find("(a*)(a*)(a*)%1%2%3b")) }
end
