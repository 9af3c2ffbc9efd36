-- expect: error
local n = 0
function on_enqueue(msg)
  n = n + 1
  if n > 1 then return { fairness_key = "kept" } end
  error("first")
end
