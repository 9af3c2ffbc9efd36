# frozen_string_literal: true

module Fila
  # See Fila::ActiveJob::Options for what a job can say, and Fila::ActiveJob::Worker for what runs it.
  module ActiveJob
    # The options of FILA.ENQUEUE that a job has, by precedence:
    #
    # 1. those of set(fila: {...})
    # 2. those of its class, from fila_options and fila_key
    # 3. the fairness key of the job that enqueues it
    #
    # They are computed when a job is enqueued first, and stored with it: a retry has the same.
    module Options
      extend ActiveSupport::Concern

      NAMES = %i[
        key weight cost throttle budget charge priority ttl dedup unique replace until maxdelay maxattempts backoff maxbackoff group
      ].freeze

      # Those that concern one message, and not the retries of its job.
      ONCE = %i[dedup unique replace until maxdelay group].freeze

      # Durations, which are milliseconds in Fila.
      DURATIONS = %i[ttl maxdelay backoff maxbackoff].freeze

      included do
        class_attribute :_fila_options, instance_accessor: false, default: {}.freeze
        prepend Stored
      end

      def self.known(options)
        unknown = options.keys.map(&:to_sym) - NAMES
        return options.transform_keys(&:to_sym) if unknown.empty?

        raise ArgumentError, "no option of Fila: #{unknown.join(', ')}; there are #{NAMES.join(', ')}"
      end

      class_methods do
        # Options of all jobs of a class and of its subclasses. A value, or a proc that is called with the
        # job: fila_options key: ->(job) { job.arguments.first.tenant }, throttle: "provider:x"
        def fila_options(**options)
          self._fila_options = _fila_options.merge(Options.known(options)).freeze
        end

        # The fairness key: fila_key { |job| job.arguments.first.tenant }
        def fila_key(key = nil, &block)
          fila_options(key: block || key)
        end

        # Of the jobs with one id, which the block computes, one is in the queue: until it has been executed, or with
        # :until_executing until it begins. Another one is left out, or with on_conflict: :replace takes the place of the one that
        # waits: with set(wait: ...) it waits anew, for at most max_wait after the first.
        def fila_unique(lifetime = :until_executed, on_conflict: :skip, max_wait: nil, &id)
          unless %i[until_executed until_executing].include?(lifetime) && %i[skip replace].include?(on_conflict) && id
            raise ArgumentError, "fila_unique has :until_executed or :until_executing, on_conflict: :skip or :replace, and a block that computes an id"
          end

          fila_options(unique: id, replace: (true if on_conflict == :replace), maxdelay: max_wait, until: ("LEASE" if lifetime == :until_executing))
        end
      end

      # In front of the methods of a job.
      module Stored
        def enqueue(options = {})
          take_fila_options(options)
          super
        end

        def set(options = {}) # since Active Job 7.0
          take_fila_options(options)
          super
        end

        def serialize
          @fila_options.blank? ? super : super.merge("fila" => @fila_options.transform_keys(&:to_s))
        end

        def deserialize(data)
          super
          @fila_options = data["fila"]&.transform_keys(&:to_sym)
        end

        # Says how far the job is, in at most 1 KiB, and extends its lease: the dashboard and FILA.RESULT show it.
        def fila_progress(text)
          Thread.current[:fila_execution]&.progress(text)
        end

        # The headers of the message that is executed: of a callback of a batch, fila-group-done and fila-group-dead.
        def fila_headers
          Thread.current[:fila_execution]&.headers || {}
        end

        # The options with which the job is enqueued.
        def fila_options
          @fila_options ||= begin
            named = self.class._fila_options.merge(@fila_named || {})
            named = named.transform_values { |value| value.respond_to?(:call) ? value.call(self) : value }.compact
            named[:key] ||= Thread.current[:fila_key] if Thread.current[:fila_key]
            named[:group] ||= Thread.current[:fila_batch] if Thread.current[:fila_batch]
            named.transform_values { |value| stored(value) }
          end
        end

        private

        def take_fila_options(options)
          return unless options[:fila]

          @fila_named = (@fila_named || {}).merge(Options.known(options[:fila]))
          @fila_options = nil
        end

        def stored(value)
          case value
          when Array then value.map(&:to_s)
          when Numeric, true, false then value
          when ActiveSupport::Duration then value.to_f
          else value.to_s
          end
        end
      end
    end
  end
end
