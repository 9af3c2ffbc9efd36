# frozen_string_literal: true

require "harness"

# Jobs from their start to their end, with one worker.
class TestJobs < Harness
  # The short check: one job is done, another fails as often as it may.
  def test_a_job_and_a_failure
    NoteJob.perform_later("done")
    FailingJob.perform_later
    worker("--concurrency", "1")
    wait("the job is done") { noted.include?("done") }
    wait("the other is dead") { @broker.messages("default.dlq").size == 1 }
    assert_equal 2, noted.count("failing")
    wait("nothing is left") { @broker.info("default").values_at("ready", "leased", "delayed") == [0, 0, 0] }
  end

  def test_the_life_of_jobs
    NoteJob.set(wait: 1.hour, queue: "much-later").perform_later("much later")
    assert_equal 1, @broker.info("much-later")["delayed"]
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    NoteJob.set(wait: 1.second).perform_later("later")
    worker("--queues", "default,other", "--concurrency", "3", "--visibility", "4.5")
    NoteJob.set(queue: "other").perform_later("now")
    third = ThirdTimeJob.perform_later
    GivenUpJob.perform_later
    DiscardedJob.perform_later
    FailingJob.perform_later
    long = HeldJob.perform_later("long", end_of_held = "#{@broker.directory}/end")
    garbage = @broker.call("FILA.ENQUEUE", "default", "\xFF{")

    wait("a job is delayed as long as it says") { noted.include?("later") }
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, :>=, 1
    wait("retry_on has its third execution") { noted.grep(/execution 3/).any? }
    assert_equal ["execution 1 of #{third.provider_job_id}"], noted.grep(/execution 1/)

    dead = wait("three jobs are dead") { (all = @broker.messages("default.dlq")).size == 3 && all }
    errors = dead.to_h { |message| [message["headers"]["job_class"], message["error"]] }
    assert_equal "ArgumentError: never", errors["GivenUpJob"]
    assert_match(/\ARuntimeError: no such order/, errors["FailingJob"])
    assert_equal "not a job of Active Job", dead.find { |message| message["id"] == garbage }["error"]
    wait("the others have run") { noted.include?("discarded") && noted.include?("now") }
    # retry_on has counted two executions; of the error that Active Job does not handle the queue has counted two.
    assert_equal ["given up 1", "given up 2"], noted.grep(/given up/)
    assert_equal [2, 1, 1], [noted.count("failing"), noted.count("discarded"), noted.count("now")]

    wait("the long job begins") { noted.include?("long began") }
    wait_for_extension(long)
    File.write(end_of_held, "")
    wait("the long job ends") { noted.include?("long ended") }
    assert_equal 1, noted.count("long began")
    wait("nothing is left") { @broker.info("default").values_at("ready", "leased", "delayed") == [0, 0, 0] }

    @broker.call("FILA.REDRIVE", "default.dlq")
    wait("what was dead is dead again") { @broker.messages("default.dlq").size == 3 }
    assert_equal 4, noted.count("failing")
  end

  def test_what_a_job_enqueues_has_its_key_and_a_retry_its_options
    ParentJob.set(fila: { key: "acme", throttle: "x", dedup: "once" }).perform_later
    worker("--concurrency", "1")
    retried = wait("the retry is stored") { @broker.messages("default").find { |message| message["status"] == "delayed" } }
    assert_equal ["acme", ["x"]], retried.values_at("key", "throttle")
    assert_equal ["acme", []], @broker.messages("children").first.values_at("key", "throttle")
  end
end
