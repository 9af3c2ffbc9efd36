-- expect: error
function on_enqueue(msg)
  local t = {}
  t[0 / 0] = 1
end
