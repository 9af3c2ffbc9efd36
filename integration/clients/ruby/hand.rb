# A hand with redis-rb.
require 'redis'

OPTIONS = { host: ENV['FILA_HOST'], port: ENV['FILA_PORT'].to_i, timeout: 5 }.freeze # one second if nothing is said, in redis-rb 5

def hex(mark, text) = mark + text.b.unpack1('H*')

def show(value)
  case value
  when Hash then ["%#{value.size}", *value.flatten(1).map { |v| show(v) }].join(' ')
  when Array then ["*#{value.size}", *value.map { |v| show(v) }].join(' ')
  when Integer then ":#{value}"
  when nil then '_'
  else hex('$', value)
  end
end

$stdout.sync = true
puts Redis::VERSION
usual = Redis.new(**OPTIONS)
$stdin.each_line do |line|
  block, *words = line.split
  args = words.map { |w| [w[1..]].pack('H*') }
  # A client of its own for calls that block: read_timeout has to be longer. 0 is none in redis-rb 4 only.
  client = usual
  client = Redis.new(**OPTIONS, read_timeout: block == '0' ? 3600 : block.to_i / 1000.0 + 5) unless block == '-'
  puts show(client.call(*args))
rescue Redis::CommandError => e
  puts hex('-', e.message)
rescue Redis::BaseError, SystemCallError => e # redis-rb 4 passes on a connection that is reset while it is made
  puts hex('!', e.message)
end
