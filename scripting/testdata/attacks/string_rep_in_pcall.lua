-- expect: memory
function on_enqueue(msg)
  while true do pcall(string.rep, "x", 1e9) end
end
