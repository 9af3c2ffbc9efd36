-- expect: load
while true do end
function on_enqueue(msg) end
