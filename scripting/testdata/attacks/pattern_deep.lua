-- expect: error
function on_enqueue(msg)
  return { fairness_key = tostring(("a"):rep(5000):match(("(a)"):rep(30) .. ("a?"):rep(400))) }
end
