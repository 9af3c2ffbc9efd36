# frozen_string_literal: true

# Active Job on Fila: an adapter that stores jobs as messages, options of jobs for tenants and
# throttles, and a worker that runs them.

require "active_job"
require "json"
require "redis"
require "socket"
require "fila/active_job/connection"
require "fila/active_job/options"
require "fila/active_job/execution"
require "fila/active_job/worker"
require "fila/active_job/batch"
require "active_job/queue_adapters/fila_adapter"

ActiveSupport.on_load(:active_job) { include Fila::ActiveJob::Options }
