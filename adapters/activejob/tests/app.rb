# frozen_string_literal: true

# The application of the tests, as a worker loads it. Nothing in the jobs knows what they run on but
# TenantJob and ThrottledJob.

require "logger"
require "active_support/core_ext/numeric/time"
require "fila/active_job"

ActiveJob::Base.logger = Logger.new($stderr, level: ENV.fetch("LOG_LEVEL", "fatal"))
ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::FilaAdapter.new(queue_options: { maxattempts: 2, backoff: 50 })

# Notes in a file, which outlives processes, what was done.
def note(line)
  File.write(ENV.fetch("NOTES"), "#{line}\n", mode: "a")
end

# What perform_all_later needs, which Active Job has since 7.1.
unless ActiveJob::Base.method_defined?(:successfully_enqueued?)
  ActiveJob::EnqueueError = Class.new(StandardError)
  ActiveJob::Base.class_eval do
    attr_writer :successfully_enqueued
    attr_accessor :enqueue_error

    def successfully_enqueued?
      @successfully_enqueued
    end
  end
end

# Notes when a worker begins no more jobs.
Fila::ActiveJob::Worker.prepend(Module.new do
  def stop
    super
    note("stopping")
  end
end)

class NoteJob < ActiveJob::Base
  def perform(line)
    note(line)
  end
end

class ThirdTimeJob < ActiveJob::Base
  retry_on ArgumentError, wait: 0.05.seconds, attempts: 5

  def perform
    note("execution #{executions} of #{provider_job_id}")
    raise ArgumentError, "not yet" if executions < 3
  end
end

class GivenUpJob < ActiveJob::Base
  retry_on ArgumentError, wait: 0.05.seconds, attempts: 2

  def perform
    note("given up #{executions}")
    raise ArgumentError, "never"
  end
end

class DiscardedJob < ActiveJob::Base
  discard_on ArgumentError

  def perform
    note("discarded")
    raise ArgumentError, "does not matter"
  end
end

class FailingJob < ActiveJob::Base
  def perform
    note("failing")
    raise "no such order \xE9"
  end
end

# Works until a file exists.
class HeldJob < ActiveJob::Base
  def perform(name, file)
    note("#{name} began")
    sleep(0.02) until File.exist?(file)
    note("#{name} ended")
  end
end

class TenantJob < ActiveJob::Base
  fila_key { |job| job.arguments.first }

  def perform(tenant, *)
    sleep(0.005)
    note(tenant)
  end
end

# Works until a file exists, if it names one.
class ThrottledJob < TenantJob
  fila_options throttle: ->(job) { ["slow:#{job.arguments.first}"] }, ttl: 1.hour

  def perform(tenant, file = nil)
    note("#{tenant} began")
    sleep(0.02) until file.nil? || File.exist?(file)
    note("#{tenant} ended")
  end
end

class ParentJob < ActiveJob::Base
  retry_on ArgumentError, wait: 600

  def perform
    NoteJob.set(queue: "children").perform_later("child")
    raise ArgumentError, "again, much later"
  end
end

class PageJob < ActiveJob::Base
  retry_on ArgumentError, wait: 0.05.seconds, attempts: 3
  fila_options maxattempts: 0, backoff: 0.05.seconds

  def perform(page, fails = 0)
    fila_progress("page #{page}")
    note("page #{page} execution #{executions}")
    raise ArgumentError, "not yet" if executions <= fails
  end
end

class SummaryJob < ActiveJob::Base
  def perform(of)
    note("summary of #{of}: #{fila_headers.values_at('fila-group-done', 'fila-group-dead').join(' ')}")
  end
end

class SyncJob < ActiveJob::Base
  fila_unique(:until_executing, on_conflict: :replace, max_wait: 1.hour) { |job| "sync:#{job.arguments.first}" }

  def perform(tenant, version)
    note("#{tenant} #{version}")
  end
end

class LimitedJob < ActiveJob::Base
  def perform
    note("limited #{(Time.now.to_f * 1000).to_i}")
    raise Fila::ActiveJob::Hold.new("provider:x", 0.5, "busy") if noted_once?
  end

  def noted_once?
    File.readlines(ENV.fetch("NOTES")).grep(/limited/).size == 1
  end
end

# Says how far it is, and works until a file exists.
class ProgressJob < ActiveJob::Base
  def perform(file)
    fila_progress("3 of 7")
    sleep(0.02) until File.exist?(file)
  end
end
