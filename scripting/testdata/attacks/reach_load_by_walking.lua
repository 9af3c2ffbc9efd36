-- expect: error
function on_enqueue(msg)
  local seen, bad = {}, { load = 1, loadstring = 1, dofile = 1, require = 1, os = 1, io = 1, debug = 1, coroutine = 1 }
  local function walk(t)
    if type(t) ~= "table" or seen[t] then return end
    seen[t] = true
    for k, v in pairs(t) do
      if bad[k] then error("reached") end
      walk(v)
      walk(getmetatable(v))
    end
    walk(getmetatable(t))
  end
  walk(_G)
  walk(string)
  walk(getmetatable(""))
  walk(getmetatable(msg))
  error("nothing")
end
