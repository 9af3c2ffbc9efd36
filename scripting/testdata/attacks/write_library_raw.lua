-- expect: error
function on_enqueue(msg)
  rawset(string, "rep", nil)
end
