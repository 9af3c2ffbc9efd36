# frozen_string_literal: true

module Fila
  module ActiveJob
    # Raised by a job: no message that names the throttle is delivered for a number of seconds, in any queue, such as a provider's
    # Retry-After says. The job is tried again as after other errors, but not before.
    class Hold < StandardError
      attr_reader :options

      def initialize(throttle, seconds, message = "held")
        super(message)
        @options = ["HOLD", throttle, (seconds.to_f * 1000).ceil]
      end
    end

    # A message that a thread of a worker executes.
    class Execution
      attr_reader :queue, :receipt, :headers, :retry_at
      attr_writer :group_job # the id of a job that belongs to a batch

      def initialize(connection, queue, receipt, headers, milliseconds)
        @connection, @queue, @receipt, @headers, @milliseconds = connection, queue, receipt, headers, milliseconds
      end

      def progress(text)
        @connection.call("FILA.EXTEND", queue, receipt, @milliseconds, "PROGRESS", text)
      end

      # Whether an enqueue is the retry of the job that is executed, and keeps its message; at is in Unix milliseconds, nil for now.
      def retries?(job, at)
        return false unless @group_job && job.job_id == @group_job && job.executions.positive?

        @retry_at = at || 0
        true
      end

      def delay
        [retry_at - (Time.now.to_f * 1000).ceil, 0].max
      end
    end
  end
end
