# frozen_string_literal: true

require "harness"

# Batches, progress, ids that replace and holds.
class TestBatches < Harness
  Batch = Fila::ActiveJob::Batch

  def test_a_batch
    batch = Batch.enqueue(on_success: SummaryJob.new(7), expire: 1.day) do
      [1, 2, 3].each { |page| PageJob.perform_later(page) }
    end
    assert_equal ["sealed", 3], batch.state.values_at("state", "pending")
    refute_predicate batch, :finished?
    worker("--concurrency", "2")
    wait("the callback runs") { noted.include?("summary of 7: 3 0") }
    assert_predicate batch, :finished?
    assert_equal 1, noted.grep(/summary/).size
  end

  def test_a_retried_job_stays_in_its_batch
    batch = Batch.enqueue(on_success: SummaryJob.new("retries"), expire: 1.hour) { PageJob.perform_later("a", 2) }
    worker("--concurrency", "2")
    wait("the callback runs") { noted.include?("summary of retries: 1 0") }
    assert_equal ["page a execution 1", "page a execution 2", "page a execution 3"], noted.grep(/page/)
    assert_equal [1, 1], batch.state.values_at("members", "done")
  end

  def test_a_job_that_is_given_up
    finished = Batch.enqueue(on_finish: SummaryJob.new("finish")) { PageJob.perform_later("a", 9) }
    waiting = Batch.enqueue(on_success: SummaryJob.new("success")) { PageJob.perform_later("b", 9) }
    worker("--concurrency", "2")
    wait("the callback runs") { noted.include?("summary of finish: 0 1") }
    wait("the other is dead") { waiting.state["dead"] == 1 }
    assert_predicate finished, :finished?
    refute_predicate waiting, :finished?
    assert_equal 6, noted.grep(/page/).size # retry_on has three attempts
    assert waiting.cancel
    assert_predicate waiting, :finished?
  end

  def test_a_batch_that_is_added_to
    batch = Batch.open(on_finish: SummaryJob, name: "import-7")
    batch.add { NoteJob.perform_later("one") }
    Batch.new("import-7").add { NoteJob.perform_later("two") }
    NoteJob.perform_later("outside")
    assert_equal 2, batch.seal
    assert_nil Batch.new("none").state
    assert_raises(Redis::CommandError) { batch.add { NoteJob.perform_later("late") } }
  end

  def test_an_error_cancels_a_batch
    assert_raises(RuntimeError) do
      Batch.enqueue(on_finish: SummaryJob, name: "broken") { NoteJob.perform_later("x") and raise "no" }
    end
    assert_equal "cancelled", Batch.new("broken").state["state"]
    assert_raises(ArgumentError) { Batch.enqueue {} }
  end

  def test_progress
    job = ProgressJob.perform_later(file = "#{@broker.directory}/end")
    worker("--concurrency", "1")
    wait("there is progress") { @broker.messages("default").any? { |m| m["id"] == job.provider_job_id && m["progress"] == "3 of 7" } }
    File.write(file, "")
    wait("it ends") { @broker.messages("default").empty? }
  end

  def test_the_last_one_wins
    ids = [1, 2].map { |version| SyncJob.set(wait: 0.2.seconds).perform_later("acme", version).provider_job_id }
    assert_equal 1, ids.uniq.size
    worker("--concurrency", "1")
    wait("it runs") { noted.any? }
    SyncJob.perform_later("acme", 3)
    wait("the next one runs") { noted.size == 2 }
    assert_equal ["acme 2", "acme 3"], noted
    assert_raises(ArgumentError) { SyncJob.fila_unique(:always) { "x" } }
  end

  def test_a_throttle_is_held
    LimitedJob.set(fila: { throttle: "provider:x" }).perform_later
    worker("--concurrency", "1")
    times = wait("it runs again") { (all = noted.grep(/limited/)).size == 2 && all }.map { |line| line[/\d+/].to_i }
    assert_operator times[1] - times[0], :>=, 490
  end
end
