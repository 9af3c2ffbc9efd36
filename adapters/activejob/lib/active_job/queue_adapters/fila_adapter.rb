# frozen_string_literal: true

module ActiveJob
  module QueueAdapters
    # Stores jobs as messages of Fila:
    #
    #   config.active_job.queue_adapter = :fila            # the broker that FILA_URL names
    #   config.active_job.queue_adapter = ActiveJob::QueueAdapters::FilaAdapter.new(
    #     url: "fila://127.0.0.1:5555", queue_options: { maxattempts: 5, backoff: 2000 })
    #
    # The payload of a message is the job as JSON, its header job_class names the class. The id of the
    # message becomes the provider_job_id.
    class FilaAdapter < (defined?(AbstractAdapter) ? AbstractAdapter : Object)
      BATCH = 500

      attr_reader :connection

      def initialize(**options)
        super()
        @connection = Fila::ActiveJob::Connection.new(**options)
      end

      def enqueue(job)
        store(job)
      end

      def enqueue_at(job, timestamp)
        store(job, "AT", milliseconds(timestamp))
      end

      # For perform_all_later, since Active Job 7.1: a round trip for each BATCH jobs. A job that the broker refuses has an enqueue_error
      # and does not keep the others from being enqueued. Returns how many were.
      def enqueue_all(jobs)
        jobs.each_slice(BATCH) do |batch|
          replies = connection.batch(batch.map { |job| enqueuing(job, *at(job)) })
          batch.zip(replies) { |job, reply| enqueued(job, reply) }
        end
        jobs.count(&:successfully_enqueued?)
      end

      # The payload of a job and its options, for FILA.ENQUEUE and FILA.GROUP OPEN.
      def message(job)
        options = arguments(job) # before serialize, which stores them
        [JSON.generate(job.serialize), *options, "HEADER", "job_class", job.class.name]
      end

      private

      def store(job, *time)
        return if Thread.current[:fila_execution]&.retries?(job, time.last)

        job.provider_job_id = connection.on(job.queue_name) { connection.call(*enqueuing(job, *time)) }
      end

      def enqueuing(job, *time)
        ["FILA.ENQUEUE", job.queue_name, *message(job), *time]
      end

      def at(job)
        job.scheduled_at ? ["AT", milliseconds(job.scheduled_at)] : []
      end

      def milliseconds(time)
        (time.to_f * 1000).ceil
      end

      def enqueued(job, reply)
        job.successfully_enqueued = reply.is_a?(String)
        if job.successfully_enqueued?
          job.provider_job_id = reply
        else
          job.enqueue_error = ActiveJob::EnqueueError.new(reply.message)
        end
      end

      def arguments(job)
        options = job.fila_options
        # A retry is a message of its own, not a duplicate of the one that failed.
        options = options.except(*Fila::ActiveJob::Options::ONCE) if job.executions.positive?
        options = { priority: priority(job) }.merge(options) if job.priority
        options.flat_map do |name, value|
          value = (value.to_f * 1000).ceil if Fila::ActiveJob::Options::DURATIONS.include?(name)
          next value ? [name.to_s.upcase] : [] if [true, false].include?(value)

          Array(value).flat_map { |one| [name.to_s.upcase, one] }
        end
      end

      # The smaller a priority is in Active Job, the earlier the job runs; in Fila 9 is first, 4 is usual.
      def priority(job)
        9 - job.priority.clamp(0, 9)
      end
    end
  end
end
