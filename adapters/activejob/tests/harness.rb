# frozen_string_literal: true

# Brokers, workers and waiting for the tests. They fail where something is missing.

require "minitest"
require "socket"
require "tempfile"
require "tmpdir"
require "app"

# A broker in a process of its own, with a directory that is removed when it stops.
class Broker
  attr_reader :directory, :client, :url

  RESERVED = [] # sockets that hold ports

  # A port for a server. The system gives it to no other process until this one ends: a socket that never
  # listens is bound to it, and servers may bind it beside that, as they set SO_REUSEADDR.
  def self.reserve
    socket = Socket.new(:INET, :STREAM)
    socket.setsockopt(:SOCKET, :REUSEADDR, true)
    socket.bind(Addrinfo.tcp("127.0.0.1", 0))
    RESERVED << socket
    socket.local_address.ip_port
  end

  def initialize(*options, **connection)
    @directory = Dir.mktmpdir
    @port = self.class.reserve
    @options = options
    @url = "fila://127.0.0.1:#{@port}"
    @client = Redis.new(port: @port, timeout: Harness.patience, reconnect_attempts: 0, **connection)
    start
  end

  def start
    @pid = spawn(ENV.fetch("TEST_BROKER"), "--server.listen_addr", "127.0.0.1:#{@port}", "--storage.path", @directory,
                 "--admin.listen_addr", "", "--log.level", "error", *@options, out: File::NULL)
    Harness.wait("the broker answers") { answers? }
  end

  def kill
    Process.kill(:KILL, @pid)
    Process.wait(@pid)
  end

  def stop
    kill
    @client.close
    FileUtils.rm_rf(@directory)
  end

  def call(*command)
    @client.call(*command.map(&:to_s))
  end

  def info(queue)
    map(call("FILA.QUEUE", "INFO", queue))
  end

  def messages(queue)
    call("FILA.BROWSE", queue, "COUNT", 1000)[1].map { |reply| map(reply).tap { |message| message["headers"] = map(message["headers"]) } }
  rescue Redis::CommandError => e
    raise unless e.message.start_with?("NOQUEUE")

    []
  end

  private

  # A map is a Hash with RESP3, as redis-rb 5 has it, and an array with RESP2.
  def map(reply)
    reply.is_a?(Hash) ? reply : Hash[*reply]
  end

  def answers?
    @client.ping
  rescue Redis::BaseConnectionError
    false
  end
end

# The worker of the gem, started from its command line.
class WorkerProcess
  attr_reader :pid

  def initialize(broker, notes, *options)
    gem = File.expand_path("..", __dir__)
    @pid = spawn({ "FILA_URL" => broker.url, "NOTES" => notes }, RbConfig.ruby, "-I", "#{gem}/lib", "#{gem}/exe/fila-activejob",
                 "--require", "#{gem}/tests/app.rb", *options)
  end

  def kill
    Process.kill(:KILL, @pid)
    Process.wait(@pid)
  rescue Errno::ESRCH, Errno::ECHILD
    nil # the test has ended it
  end

  # Has the worker finish what it does, and returns its status.
  def terminate
    Process.kill(:TERM, @pid)
    Harness.wait("the worker ends") { Process.wait(@pid, Process::WNOHANG) }
    $?
  end
end

# Notes of what jobs did, and a broker for each test, or one for all tests of a class that kill none.
class Harness < Minitest::Test
  # How long a test waits for something, in seconds: two minutes, times TEST_PATIENCE.
  def self.patience
    120 * Float(ENV.fetch("TEST_PATIENCE", "1"))
  end

  def self.wait(what)
    limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience
    until (value = yield)
      raise "not within #{patience} s: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit

      sleep(0.02)
    end
    value
  end

  # The broker of all tests of a class; nil: each test has its own.
  def self.shared
  end

  def broker
    self.class.shared || Broker.new
  end

  def setup
    @broker = broker
    @workers = []
    @notes = Tempfile.new("notes")
    ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::FilaAdapter.new(
      url: @broker.url, queue_options: { maxattempts: 2, backoff: 50 }
    )
  end

  def teardown
    @workers.each(&:kill)
    @broker.stop unless @broker.equal?(self.class.shared)
    @notes.close!
  end

  def worker(*options)
    WorkerProcess.new(@broker, @notes.path, *options).tap { |worker| @workers << worker }
  end

  def noted
    File.readlines(@notes.path, chomp: true)
  end

  # Waits until the lease of the message of a job has been extended once more.
  def wait_for_extension(job)
    lease_until = -> { @broker.messages(job.queue_name).find { |message| message["id"] == job.provider_job_id }&.fetch("lease_until") }
    before = wait("the job is leased", &lease_until)
    wait("its lease is extended") { lease_until.call.to_i > before }
  end

  def wait(what, &condition)
    Harness.wait(what, &condition)
  end
end
