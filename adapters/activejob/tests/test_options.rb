# frozen_string_literal: true

require "harness"

# What a job names, looked at in the broker. No worker runs.
class TestOptions < Harness
  def self.shared
    @shared ||= Broker.new.tap { |broker| Minitest.after_run { broker.stop } }
  end

  def stored(job_class, *arguments, **options)
    job_class.set(queue: "named", **options).perform_later(*arguments)
    message = @broker.messages("named").last
    @broker.call("FILA.PURGE", "named")
    message
  end

  def test_an_unmodified_job
    message = stored(NoteJob, "x")
    assert_equal ["default", [], 4, "ready"], message.values_at("key", "throttle", "priority", "status")
    assert_equal "NoteJob", message["headers"]["job_class"]
    assert_equal ["x"], JSON.parse(message["payload"])["arguments"]
    refute JSON.parse(message["payload"]).key?("fila")
  end

  def test_the_id_of_the_message_and_its_queue
    job = NoteJob.set(queue: "fresh").perform_later("x")
    assert_equal ["fresh", job.provider_job_id], @broker.messages("fresh").first.values_at("queue", "id")
    assert_equal [2, 50], @broker.info("fresh").values_at("max_attempts", "backoff_ms")
  end

  def test_a_priority_is_reversed
    assert_equal([9, 4, 0, 0], [-3, 5, 9, 100].map { |priority| stored(NoteJob, "x", priority: priority)["priority"] })
  end

  def test_options_of_a_class_and_of_what_it_is_derived_from
    message = stored(ThrottledJob, "acme")
    assert_equal ["acme", ["slow:acme"]], message.values_at("key", "throttle")
    assert_in_delta 3_600_000, message["expires_at"] - message["enqueued_at"], 2000
    assert_equal [], stored(TenantJob, "acme")["throttle"]
  end

  def test_options_of_one_job
    message = stored(ThrottledJob, "acme", fila: { key: "globex", cost: 3, weight: 2, priority: 7 })
    assert_equal ["globex", ["slow:acme"], 3, 2, 7], message.values_at("key", "throttle", "cost", "weight", "priority")
  end

  def test_a_duplicate
    ids = Array.new(2) { NoteJob.set(fila: { dedup: "once" }).perform_later("x").provider_job_id }
    assert_equal 1, ids.uniq.size
  end

  def test_an_option_that_there_is_not
    error = assert_raises(ArgumentError) { Class.new(ActiveJob::Base) { fila_options kye: "acme" } }
    assert_match(/no option of Fila: kye; there are key, /, error.message)
    assert_raises(ArgumentError) { NoteJob.set(fila: { troughput: 1 }).perform_later("x") }
  end

  def test_jobs_that_are_enqueued_together
    adapter = ActiveJob::Base.queue_adapter
    adapter.connection.create("full")
    @broker.call("FILA.QUEUE", "ALTER", "full", "MAXDEPTH", 1)
    jobs = Array.new(1100) { |n| TenantJob.new(n.to_s).tap { |job| job.queue_name = "together" } }
    jobs[7].scheduled_at = 1.hour.from_now.to_f
    jobs[8].queue_name = jobs[9].queue_name = "full"
    jobs[1050] = TenantJob.new("too long" * 1000)
    before = transactions
    assert_equal 1098, adapter.enqueue_all(jobs)
    assert_operator transactions - before, :<, 30
    assert_equal [9, 1050], jobs.each_index.reject { |n| jobs[n].successfully_enqueued? }
    assert_match(/MAXDEPTH/, jobs[9].enqueue_error.message)
    assert_match(/TOOBIG/, jobs[1050].enqueue_error.message)
    assert_equal [1096, 1, 1], [@broker.info("together")["ready"], @broker.info("together")["delayed"], @broker.info("full")["ready"]]
    [0, 7, 499, 500, 1099].each { |n| assert_equal n.to_s, Hash[*@broker.call("FILA.GET", "together", jobs[n].provider_job_id)]["key"] }
  end

  def transactions
    @broker.call("INFO", "commandstats")[/cmdstat_exec:calls=(\d+)/, 1].to_i
  end

  def test_tls_and_a_password
    Dir.mktmpdir do |dir|
      assert system("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "#{dir}/key", "-out", "#{dir}/cert", %i[out err] => File::NULL)
      address = "127.0.0.1:#{Broker.reserve}"
      guarded = Broker.new("--tls.listen_addr", address, "--tls.cert_file", "#{dir}/cert", "--tls.key_file", "#{dir}/key",
                           "--tls.auth_clients", "no", "--auth.password", "secret", password: "secret")
      trust = { ca_file: "#{dir}/cert" }
      assert_equal "OK", Fila::ActiveJob::Connection.new(url: "filas://:secret@#{address}", ssl_params: trust).create("q")
      [["secret", {}], ["wrong", trust]].each do |password, ssl_params|
        assert_raises(Redis::BaseError, OpenSSL::SSL::SSLError) { Fila::ActiveJob::Connection.new(url: "filas://:#{password}@#{address}", ssl_params: ssl_params).create("q") }
      end
    ensure
      guarded&.stop
    end
  end

  def test_a_forked_process_has_a_connection_of_its_own
    job = NoteJob.set(queue: "forked")
    job.perform_later("parent")
    Process.wait(fork { job.perform_later("child") and exit!(0) })
    assert_equal 0, $?.exitstatus
    job.perform_later("parent")
    assert_equal 3, @broker.info("forked")["ready"]
  end

  def test_a_command_line_that_cannot_be
    output = IO.popen([RbConfig.ruby, "-I", "lib", "exe/fila-activejob", "--require", "nowhere.rb"], err: %i[child out], &:read)
    assert_equal "fila-activejob: there is no file nowhere.rb: name the application with --require\n", output
  end
end
