-- expect: error
function on_enqueue(msg)
  local saved = rawget(_G, "saved")
  if saved then return { fairness_key = saved() } end
  _G.saved = function() return "kept" end
  error("first")
end
