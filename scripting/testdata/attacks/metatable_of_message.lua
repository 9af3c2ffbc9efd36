-- expect: error
function on_enqueue(msg)
  getmetatable(msg).__index = nil
end
