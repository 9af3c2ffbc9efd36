#!/usr/bin/env ruby
# producer.rb KEY JOB...: enqueues jobs for a tenant, with redis-rb.
require 'redis'

QUEUE = ENV.fetch('FILA_QUEUE', 'jobs')

fila = Redis.new(host: ENV.fetch('FILA_HOST', '127.0.0.1'), port: ENV.fetch('FILA_PORT', 5555).to_i, reconnect_attempts: 0)
fila.call('FILA.QUEUE', 'CREATE', QUEUE, 'IFNOTEXISTS')
key, *jobs = ARGV
jobs.each { |job| puts fila.call('FILA.ENQUEUE', QUEUE, job, 'KEY', key, 'HEADER', 'from', 'ruby') }
