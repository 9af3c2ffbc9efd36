-- expect: error
function on_enqueue(msg)
  local t = {}
  t.throttle_keys = t
  return t
end
