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

class ThrottledJob < TenantJob
  fila_options throttle: ->(job) { ["slow:#{job.arguments.first}"] }, ttl: 1.hour

  def perform(tenant)
    note("#{tenant} began")
    sleep(0.03)
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
