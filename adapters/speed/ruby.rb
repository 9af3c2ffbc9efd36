# frozen_string_literal: true

# The worker of fila-activejob beside Sidekiq, each with five jobs at a time. Both load this file.

require "active_job"

class NoteJob < ActiveJob::Base
  def perform
    File.write(ENV.fetch("NOTES"), ".", mode: "a")
  end
end

fila = ENV.fetch("URL").start_with?("fila")
$LOAD_PATH.unshift(File.expand_path("../activejob/lib", __dir__))
ActiveJob::Base.logger = nil
if fila
  require "fila/active_job"
  ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::FilaAdapter.new(url: ENV.fetch("URL"))
else
  require "sidekiq"
  Sidekiq.configure_client { |config| config.redis = { url: ENV.fetch("URL") } }
  Sidekiq.configure_server { |config| config.redis = { url: ENV.fetch("URL") } }
  Sidekiq.logger.level = Logger::ERROR
  ActiveJob::Base.queue_adapter = :sidekiq
end

if $PROGRAM_NAME == __FILE__
  if ARGV[1]
    ARGV[1].to_i.times { NoteJob.perform_later }
  elsif fila
    exec({ "FILA_URL" => ENV.fetch("URL") }, RbConfig.ruby, "-I", "../activejob/lib", "../activejob/exe/fila-activejob",
         "--require", File.expand_path(__FILE__), "--concurrency", "5")
  else
    exec("sidekiq", "-r", File.expand_path(__FILE__), "-c", "5", "-q", "default")
  end
end
