# frozen_string_literal: true

module Fila
  module ActiveJob
    # A connection to the broker, and the settings of one. Threads may share it. It is opened when it is
    # first used, and opened again after an error and in a forked process.
    #
    # No command is sent twice: an enqueue whose reply was lost raises an error, and may have been stored.
    class Connection
      UNREACHABLE = [Redis::BaseConnectionError, SystemCallError, SocketError].freeze

      IDLE = 5 # seconds after which a connection is tried before it is used: the broker may have restarted

      # url is fila://user:password@host:port, or filas:// for TLS. queue_options are those of FILA.QUEUE
      # CREATE, for queues that are missing. Other options are those of Redis.new.
      def initialize(url: nil, queue_options: {}, **redis)
        @url = (url || ENV["FILA_URL"] || "fila://127.0.0.1:5555").sub(/\Afila(s?):/, 'redis\1:')
        @queue_options = queue_options
        @redis_options = { timeout: 30, **redis }
        @mutex = Mutex.new
      end

      # Another connection with the same settings.
      def initialize_copy(_other)
        @mutex = Mutex.new
        @redis = nil
      end

      def call(*command)
        @mutex.synchronize { redis.call(*strings(command)) }
      end

      # Commands on queues, whose names are their first arguments, in one round trip. A refusal is an error in the place of the reply.
      def batch(commands)
        replies = transact(commands)
        missing = replies.each_index.select { |i| refused?(replies[i], "NOQUEUE") }
        unless missing.empty?
          commands.values_at(*missing).map { |command| command[1] }.uniq.each { |queue| create(queue) }
          missing.zip(transact(commands.values_at(*missing))) { |i, reply| replies[i] = reply }
        end
        replies
      end

      # A command on queues, which are created when they are missing.
      def on(*queues)
        yield
      rescue Redis::CommandError => e
        raise unless refused?(e, "NOQUEUE")

        queues.each { |queue| create(queue) }
        yield
      end

      def create(queue)
        options = @queue_options.flat_map { |name, value| value == true ? [name.to_s.upcase] : [name.to_s.upcase, value] }
        call("FILA.QUEUE", "CREATE", queue, "IFNOTEXISTS", *options)
      end

      def close
        @mutex.synchronize { @redis&.close }
      end

      private

      # In a transaction each reply is known; of a pipeline redis-rb 4 raises the first error and hides what became of the others. One
      # that is refused as a whole, such as by a hook, has stored nothing: then its halves are sent.
      def transact(commands)
        @mutex.synchronize do
          redis.pipelined { |pipeline| [["MULTI"], *commands, ["EXEC"]].each { |command| pipeline.call(*strings(command)) } }.last
        end
      rescue Redis::CommandError => e
        raise if refused?(e, "MISCONF") # it may have been stored
        return [e] if commands.one?

        commands.each_slice((commands.size + 1) / 2).flat_map { |half| transact(half) }
      end

      def strings(command)
        command.map { |part| part.is_a?(String) ? part : part.to_s }
      end

      def refused?(reply, code)
        reply.is_a?(StandardError) && reply.message.start_with?(code)
      end

      def redis
        @redis = nil if @pid != Process.pid
        @pid = Process.pid
        @redis ||= Redis.new(**@redis_options, url: @url, reconnect_attempts: 0)
        now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        check if @used && now - @used > IDLE
        @used = now
        @redis
      end

      def check
        @redis.ping
      rescue *UNREACHABLE
        @redis.close
      end
    end
  end
end
