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
        @mutex.synchronize { redis.call(*command.map { |part| part.is_a?(String) ? part : part.to_s }) }
      end

      # A command on queues, which are created when they are missing.
      def on(*queues)
        yield
      rescue Redis::CommandError => e
        raise unless e.message.start_with?("NOQUEUE")

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
