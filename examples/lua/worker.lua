#!/usr/bin/env lua5.1
-- worker.lua: does jobs until SIGTERM or Ctrl-C, with redis-lua and luaposix.
local redis = require 'redis'
local socket = require 'socket'
local signal = require 'posix.signal'

local BLOCK_MS = 2000 -- how long it may take to see that it is to stop
local queue = os.getenv 'FILA_QUEUE' or 'jobs'
local lease_ms = tonumber(os.getenv 'FILA_LEASE_MS' or 30000)

local stopping = false
for _, s in ipairs { signal.SIGTERM, signal.SIGINT } do
  signal.signal(s, function() stopping = true end)
end
io.stdout:setvbuf 'no'

local client
local function fila(name, ...)
  client = client or redis.connect(os.getenv 'FILA_HOST' or '127.0.0.1', tonumber(os.getenv 'FILA_PORT' or 5555))
  return redis.command(name)(client, ...)
end

-- The work says that it goes on: keep extends the lease when it is time to.
local function work(job, keep)
  local verb, rest = job:match '^(%S+) (.*)$'
  if verb == 'say' then
    print(rest)
  elseif verb == 'sleep' then
    local stop = socket.gettime() + tonumber(rest)
    while socket.gettime() < stop do
      socket.sleep(0.1)
      keep()
    end
  else
    error(rest, 0)
  end
end

local function handle(receipt, job)
  local extended = socket.gettime()
  local function keep()
    if socket.gettime() - extended > lease_ms / 3000 then
      fila('FILA.EXTEND', queue, receipt, lease_ms)
      extended = socket.gettime()
    end
  end
  local ok, err = pcall(work, job, keep)
  if ok then
    fila('FILA.ACK', queue, receipt)
  else
    fila('FILA.NACK', queue, receipt, 'ERROR', tostring(err))
  end
end

local function next_one()
  for _, m in ipairs(fila('FILA.LEASE', queue, 'BLOCK', BLOCK_MS, 'VISIBILITY', lease_ms)) do handle(m[1], m[2]) end
end

while not stopping do
  local ok, err = pcall(next_one)
  if not ok and tostring(err):find('redis error: NOQUEUE ', 1, true) then
    io.stderr:write('the queue does not exist yet: ', tostring(err), '\n')
    socket.sleep(1)
  elseif not ok and tostring(err):find 'redis error' then
    error(err)
  elseif not ok and not stopping then
    client = nil -- it does not connect again by itself
    io.stderr:write('the broker is away: ', tostring(err), '\n')
    socket.sleep(1)
  end
end
