-- expect: memory
function on_enqueue(msg)
  while true do local t = {} t.x = nil end
end
