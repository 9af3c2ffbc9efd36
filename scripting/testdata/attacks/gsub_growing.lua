-- expect: memory
function on_enqueue(msg)
  local s = "xxxxxxxxxx"
  while true do s = s:gsub("x", "xxxxxxxxxx") end
end
