#!/usr/bin/env lua5.1
-- producer.lua KEY JOB...: enqueues jobs for a tenant, with redis-lua.
local redis = require 'redis'

local queue = os.getenv 'FILA_QUEUE' or 'jobs'
local client = redis.connect(os.getenv 'FILA_HOST' or '127.0.0.1', tonumber(os.getenv 'FILA_PORT' or 5555))

local function fila(name, ...)
  return redis.command(name)(client, ...)
end

fila('FILA.QUEUE', 'CREATE', queue, 'IFNOTEXISTS')
for i = 2, #arg do
  print(fila('FILA.ENQUEUE', queue, arg[i], 'KEY', arg[1], 'HEADER', 'from', 'lua'))
end
