-- A hand with redis-lua.
local redis = require 'redis'

local function hex(text)
  return (text:gsub('.', function(c) return ('%02x'):format(c:byte()) end))
end

local function show(v)
  if type(v) == 'table' then
    local all = {'*' .. table.maxn(v)} -- a nil leaves a hole, and is lost at the end
    for i = 1, table.maxn(v) do all[#all + 1] = show(v[i]) end
    return table.concat(all, ' ')
  elseif type(v) == 'number' then
    return ':' .. ('%.0f'):format(v)
  elseif type(v) == 'boolean' then
    return '$' .. hex(v and 'OK' or '') -- true is +OK
  elseif v == nil then
    return '_'
  end
  return '$' .. hex(v)
end

local client
local function call(args)
  client = client or redis.connect(os.getenv 'FILA_HOST', tonumber(os.getenv 'FILA_PORT'))
  return redis.command(args[1])(client, unpack(args, 2)) -- reads never time out
end

print(redis._VERSION:match '%S+$')
io.stdout:flush()
for line in io.lines() do
  local args = {}
  for word in line:gmatch '%$(%x*)' do
    args[#args + 1] = word:gsub('..', function(xx) return string.char(tonumber(xx, 16)) end)
  end
  local ok, reply = pcall(call, args)
  if ok then
    print(show(reply))
  else
    reply = tostring(type(reply) == 'table' and reply.message or reply)
    local refused = reply:match 'redis error: (.*)'
    if not refused then client = nil end -- it does not connect again by itself
    print((refused and '-' or '!') .. hex(refused or reply))
  end
  io.stdout:flush()
end
