-- expect: error
function on_enqueue(msg)
  _G.string = nil
  _G.type = function() return "table" end
  _G._G = nil
  local s = ("x"):rep(3)
  error("the library is there: " .. s .. tostring(string))
end
