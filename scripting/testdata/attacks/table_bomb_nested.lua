-- expect: memory
function on_enqueue(msg)
  local t = {}
  while true do t = { t, t, t, a = t, b = t } end
end
