-- expect: error
function on_enqueue(msg)
  local bad = { "%", "[", "[a", "[^", "(", ")", "%b", "%bx", "%f", "%f[", "%1", "[%", "[a-", "(()", "%9" }
  for _, p in ipairs(bad) do
    for _, f in ipairs({ string.find, string.match }) do pcall(f, "abc", p) end
    pcall(string.gsub, "abc", p, "")
    pcall(function() for _ in ("abc"):gmatch(p) do end end)
  end
  error("all refused")
end
