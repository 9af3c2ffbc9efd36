#!/usr/bin/env ruby
# worker.rb: does jobs until SIGTERM or Ctrl-C, with redis-rb.
require 'redis'

QUEUE = ENV.fetch('FILA_QUEUE', 'jobs')
LEASE_MS = ENV.fetch('FILA_LEASE_MS', 30_000).to_i
BLOCK_MS = 2000 # how long it may take to see that it is to stop

FILA = Redis.new(
  host: ENV.fetch('FILA_HOST', '127.0.0.1'), port: ENV.fetch('FILA_PORT', 5555).to_i,
  read_timeout: BLOCK_MS / 1000.0 + 5, # longer than any call may take
  reconnect_attempts: 0                # a lease that is asked for twice may be two
)

# Extends a lease, in a thread, for as long as the block takes.
def kept(receipt)
  extender = Thread.new do
    loop do
      sleep LEASE_MS / 3000.0
      FILA.call('FILA.EXTEND', QUEUE, receipt, LEASE_MS.to_s)
    end
  end
  extender.report_on_exception = false
  yield
ensure
  extender.kill
end

def work(job)
  verb, rest = job.force_encoding('UTF-8').split(' ', 2)
  case verb
  when 'say' then puts rest
  when 'sleep' then sleep rest.to_f
  else raise rest
  end
end

def handle(receipt, job)
  begin
    kept(receipt) { work(job) }
  rescue StandardError => e
    FILA.call('FILA.NACK', QUEUE, receipt, 'ERROR', e.message)
    return
  end
  FILA.call('FILA.ACK', QUEUE, receipt)
end

$stdout.sync = true
stopping = false
%w[TERM INT].each { |s| trap(s) { stopping = true } }
until stopping
  begin
    messages = FILA.call('FILA.LEASE', QUEUE, 'BLOCK', BLOCK_MS.to_s, 'VISIBILITY', LEASE_MS.to_s)
    messages.each { |receipt, job| handle(receipt, job) }
  rescue Redis::BaseConnectionError => e
    warn "the broker is away: #{e.message}"
    sleep 1
  rescue Redis::CommandError => e
    raise unless e.message.start_with?('NOQUEUE')

    warn "the queue does not exist yet: #{e.message}"
    sleep 1
  end
end
