-- expect: memory
function on_enqueue(msg)
  local s = "x"
  while true do s = s .. s end
end
