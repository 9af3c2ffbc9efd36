-- expect: error
function on_enqueue(msg)
  local function f(s) return (s:gsub(".", f)) end
  f("abc")
end
