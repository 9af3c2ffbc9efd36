-- expect: load
local t = {}
for i = 1, 1e9 do t[i] = {} end
function on_enqueue(msg) end
