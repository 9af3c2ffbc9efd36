-- expect: ok
function on_enqueue(msg)
  for i = 1, 2, 0 do end
end
