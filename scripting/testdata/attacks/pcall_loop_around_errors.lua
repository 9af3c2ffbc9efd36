-- expect: limit
function on_enqueue(msg)
  while true do pcall(error, {}) end
end
