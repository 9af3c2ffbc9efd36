-- expect: load
function on_enqueue(msg)
  ::top::
  local t = {}
  goto top
end
