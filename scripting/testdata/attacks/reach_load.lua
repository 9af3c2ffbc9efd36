-- expect: error
function on_enqueue(msg)
  for _, name in ipairs({ "load", "loadstring", "loadfile", "dofile", "require", "module", "package", "newproxy",
    "getfenv", "setfenv", "collectgarbage", "coroutine", "os", "io", "debug", "channel", "print", "_printregs" }) do
    if _G[name] ~= nil then return { fairness_key = name } end
  end
  if string.dump or math.random then return { fairness_key = "more" } end
  error("none is there")
end
