-- expect: limit
function on_enqueue(msg)
  while true do pcall(function() while true do end end) end
end
