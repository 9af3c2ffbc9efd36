# frozen_string_literal: true

module Fila
  module ActiveJob
    # Runs jobs. Each of its threads leases one message at a time, so the broker decides which job is next
    # at the moment at which a thread is free.
    #
    # 1. A thread leases a message and has Active Job execute what is in it.
    # 2. While that works, another thread extends the lease at a third of its time.
    # 3. The message is acked when the job has ended, which includes that Active Job retries or discards it:
    #    retry_on has enqueued a message of its own by then. It is nacked when an error came out of the job.
    #
    # A job that is killed in between is delivered again when its lease expires.
    #
    # A job of a batch keeps its message when it is retried: the batch waits for that one. It is nacked with a delay, and the
    # failures of the message are the executions of the job.
    class Worker
      BLOCK = 1.0 # seconds for which a lease waits for messages, and so for how long a stop may go unnoticed
      PAUSE = 0.5 # seconds after an error of the connection
      ERROR_MAX = 1000 # characters of an error that the broker keeps

      # visibility is the time of a lease in seconds; after it the jobs of a worker that died run again.
      def initialize(queues: ["default"], concurrency: 5, visibility: 30, connection: nil, logger: nil, name: nil)
        @queues, @concurrency, @visibility = queues, concurrency, visibility
        @connection = connection || self.class.connection
        @logger = logger || ::ActiveJob::Base.logger
        @name = name || "#{Socket.gethostname}:#{Process.pid}"
        @stopping = false
        @busy = {} # receipt: queue
        @lock = Mutex.new
        @ended = ConditionVariable.new
      end

      # The connection of the application's adapter.
      def self.connection
        adapter = ::ActiveJob::Base.queue_adapter
        adapter.respond_to?(:connection) ? adapter.connection : Connection.new
      end

      # Has run return once the jobs that have begun are done. A signal handler may call it.
      def stop
        @stopping = true
      end

      # Works until stop is called.
      def run
        stopped = ActiveSupport::Notifications.subscribe("retry_stopped.active_job") { |*, event| Thread.current[:fila_given_up] = event[:error] }
        done = false
        extender = Thread.new { extend_leases(@connection.dup) { done } }
        Array.new(@concurrency) { Thread.new { work(@connection.dup) } }.each(&:join)
        @lock.synchronize { done = true and @ended.broadcast }
        extender.join
      ensure
        ActiveSupport::Notifications.unsubscribe(stopped)
      end

      private

      def work(connection)
        until @stopping
          begin
            lease(connection).each { |message| take(connection, *message) }
          rescue *Connection::UNREACHABLE, Redis::CommandError => e
            @logger.warn("fila: cannot lease: #{e.message}")
            sleep(PAUSE)
          end
        end
      ensure
        connection.close
      end

      def lease(connection)
        connection.on(*@queues) do
          connection.call("FILA.MLEASE", @queues.size, *@queues, "COUNT", 1, "BLOCK", (BLOCK * 1000).to_i,
                          "VISIBILITY", milliseconds, "CONSUMER", @name)
        end
      end

      def take(connection, receipt, payload, headers, key, attempt, _deliveries, _enqueued_at, _lease_until, queue)
        if @stopping
          settle(connection, "FILA.RELEASE", queue, receipt)
          return
        end
        @lock.synchronize { @busy[receipt] = queue }
        execution = Execution.new(connection, queue, receipt, headers.is_a?(Hash) ? headers : Hash[*headers], milliseconds)
        settle(connection, *outcome(execution, payload, key, attempt))
      ensure
        @lock.synchronize { @busy.delete(receipt) }
      end

      # Runs a job and returns the command that ends its lease.
      def outcome(execution, payload, key, attempt)
        queue, receipt = execution.queue, execution.receipt
        job = parse(payload)
        return ["FILA.NACK", queue, receipt, "ERROR", "not a job of Active Job", "DEAD"] if job.nil?

        if job.dig("fila", "group")
          execution.group_job = job["job_id"]
          job = job.merge("executions" => attempt - 1).except("exception_executions")
        end
        error = execute(execution, job.merge("provider_job_id" => receipt[/\A[^:]*/]), key)
        return execution.retry_at ? ["FILA.NACK", queue, receipt, "ERROR", "retried", "DELAY", execution.delay] : ["FILA.ACK", queue, receipt] if error.nil?

        @logger.error("fila: job #{job['job_class']} #{job['job_id']} has failed: #{error.class}: #{error.message}")
        given_up = error.equal?(Thread.current[:fila_given_up]) # retry_on has tried often enough
        ["FILA.NACK", queue, receipt, "ERROR", "#{error.class}: #{error.message}".scrub[0, ERROR_MAX], *("DEAD" if given_up), *(error.options if error.is_a?(Hold))]
      end

      def parse(payload)
        job = JSON.parse(payload.dup.force_encoding(Encoding::UTF_8))
        job if job.is_a?(Hash) && job["job_class"].is_a?(String)
      rescue JSON::ParserError
        nil
      end

      # What a job enqueues has its fairness key, unless it names another.
      def execute(execution, job, key)
        Thread.current[:fila_execution] = execution
        Thread.current[:fila_key] = key
        Thread.current[:fila_given_up] = nil
        ::ActiveJob::Base.execute(job)
        nil
      rescue Exception => e # rubocop:disable Lint/RescueException -- whatever comes out of a job is its failure
        e
      ensure
        Thread.current[:fila_key] = Thread.current[:fila_execution] = nil
      end

      # Ends a lease. While the broker cannot be reached it tries again, until the lease would be over.
      def settle(connection, *command)
        give_up = now + @visibility
        begin
          connection.call(*command)
        rescue Redis::CommandError => e # such as a lease that is lost
          @logger.warn("fila: #{command.first} of message #{command[2]}: #{e.message}")
          hold = command.index("HOLD")
          if hold && e.message.start_with?("INVALID") # the message does not name the throttle
            command = command[0...hold]
            retry
          end
        rescue *Connection::UNREACHABLE => e
          @logger.warn("fila: #{command.first} of message #{command[2]}: #{e.message}")
          sleep(PAUSE)
          retry if now < give_up
        end
      end

      def extend_leases(connection)
        until @lock.synchronize { yield || (@ended.wait(@lock, @visibility / 3.0) && yield) }
          @lock.synchronize { @busy.to_a }.each { |receipt, queue| extend_lease(connection, receipt, queue) }
        end
      ensure
        connection.close
      end

      def extend_lease(connection, receipt, queue)
        connection.call("FILA.EXTEND", queue, receipt, milliseconds)
      rescue Redis::CommandError => e
        return unless @lock.synchronize { @busy.delete(receipt) } # it has ended meanwhile

        @logger.warn("fila: the lease of message #{receipt} is lost, it is delivered again: #{e.message}")
      rescue *Connection::UNREACHABLE => e
        @logger.warn("fila: cannot extend the lease of message #{receipt}: #{e.message}")
      end

      def milliseconds
        (@visibility * 1000).to_i
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
