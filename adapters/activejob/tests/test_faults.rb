# frozen_string_literal: true

require "harness"

# What is lost, and what comes again, when a worker or the broker ends.
class TestFaults < Harness
  def test_a_killed_worker
    file = "#{@broker.directory}/end"
    first = worker("--visibility", "4.5")
    HeldJob.perform_later("job", file)
    wait("the job has begun") { noted.any? }
    first.kill
    worker
    wait("the job has begun again") { noted.size == 2 }
    File.write(file, "")
    wait("it ends") { noted.size == 3 }
    assert_equal ["job began", "job began", "job ended"], noted
  end

  def test_a_killed_broker
    file = "#{@broker.directory}/end"
    worker("--concurrency", "1")
    HeldJob.perform_later("job", file)
    wait("the job has begun") { noted.any? }
    sleep(0.1) # more than the broker's delay to write a lease, which it has written before what is stored next
    10.times { |n| NoteJob.perform_later(n) }
    NoteJob.set(wait: 1.second).perform_later("later")
    @broker.kill
    File.write(file, "")
    wait("the job ends without a broker") { noted.include?("job ended") }
    @broker.start
    wait("all is done") { noted.include?("later") && noted.include?("9") }
    assert_equal (0..9).map(&:to_s), noted.grep(/\A\d/)
    wait("the ack of the job was sent again") { @broker.info("default").values_at("ready", "leased") == [0, 0] }
    assert_equal 1, noted.count("job began")
  end

  def test_a_worker_that_stops_in_order
    file = "#{@broker.directory}/end"
    leaving = worker("--concurrency", "2")
    4.times { |n| HeldJob.perform_later(n, file) }
    wait("two have begun") { noted.size == 2 }
    Thread.new { wait("it stops") { noted.include?("stopping") } and File.write(file, "") }
    assert_predicate leaving.terminate, :success?
    assert_equal 2, noted.grep(/ended/).size
    assert_equal [2, 0], @broker.info("default").values_at("ready", "leased")
    assert_equal [1], @broker.messages("default").map { |message| message["attempt"] }.uniq
  end

  def test_a_broker_that_cannot_be_reached_is_an_error_once
    NoteJob.perform_later("before")
    @broker.kill
    assert_raises(Redis::BaseConnectionError) { NoteJob.perform_later("lost") }
    @broker.start
    NoteJob.perform_later("after")
    assert_equal 2, @broker.info("default")["ready"]
  end
end
