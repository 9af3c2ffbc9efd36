-- expect: limit
function on_enqueue(msg)
  xpcall(function() error("x") end, function() while true do end end)
end
