# frozen_string_literal: true

require "securerandom"

module Fila
  module ActiveJob
    # Jobs with a callback that runs when all of them have ended: a group of Fila.
    #
    #   Batch.enqueue(on_success: SummaryJob.new(7)) { pages.each { |page| PageJob.perform_later(page) } }
    #
    # The broker enqueues the callback, exactly once. on_success waits until all jobs have succeeded, also those that are redriven
    # when they were dead; on_finish takes dead jobs as ended.
    class Batch
      attr_reader :name

      # Enqueues the jobs of a block as a batch. If it raises an error, the batch is cancelled.
      def self.enqueue(**options)
        batch = open(**options)
        begin
          batch.add { yield batch }
          batch.seal
        rescue Exception # rubocop:disable Lint/RescueException -- whatever it is
          batch.cancel
          raise
        end
        batch
      end

      # Opens a batch; add and seal are the caller's. A callback is a job that is not enqueued yet, or its class. expire is the time
      # after which the batch is cancelled.
      def self.open(on_success: nil, on_finish: nil, name: SecureRandom.uuid, expire: nil)
        raise ArgumentError, "a batch has on_success or on_finish" unless on_success.nil? ^ on_finish.nil?

        callback = on_success || on_finish
        callback = callback.new if callback.is_a?(Class)
        adapter = callback.class.queue_adapter
        command = ["FILA.GROUP", "OPEN", name, callback.queue_name, *adapter.message(callback), "WHEN", on_success ? "DONE" : "ENDED"]
        command.push("EXPIRE", (expire.to_f * 1000).ceil) if expire
        adapter.connection.on(callback.queue_name) { adapter.connection.call(*command) }
        new(name, adapter.connection)
      end

      def initialize(name, connection = Worker.connection)
        @name, @connection = name, connection
      end

      # What the block enqueues belongs to the batch.
      def add
        before, Thread.current[:fila_batch] = Thread.current[:fila_batch], name
        yield
      ensure
        Thread.current[:fila_batch] = before
      end

      # Has the batch take no more jobs. Returns how many are pending.
      def seal
        @connection.call("FILA.GROUP", "SEAL", name)
      end

      # Cancels the callback and the jobs that have not begun; false if the batch has ended.
      def cancel
        @connection.call("FILA.GROUP", "CANCEL", name) == 1
      end

      # The reply of FILA.GROUP GET, such as {"state" => "sealed", "pending" => 3}; nil if the batch is not known.
      def state
        reply = @connection.call("FILA.GROUP", "GET", name)
        reply.is_a?(Array) ? Hash[*reply] : reply
      end

      # Whether all jobs have ended, or the batch was cancelled.
      def finished?
        !state&.fetch("ended_at").nil?
      end
    end
  end
end
