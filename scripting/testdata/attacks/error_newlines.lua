-- expect: error
function on_enqueue(msg)
  error("one\r\n-ERR two\0\27[31m")
end
