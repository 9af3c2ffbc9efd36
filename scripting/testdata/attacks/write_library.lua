-- expect: error
function on_enqueue(msg)
  string.rep = nil
end
