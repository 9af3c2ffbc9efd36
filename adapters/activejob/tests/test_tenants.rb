# frozen_string_literal: true

require "harness"

# What tenants that share workers wait for.
class TestTenants < Harness
  NOISY = 100
  QUIET = 5

  def broker
    Broker.new("--storage.sync", "never") # it is about order, and nothing is killed
  end

  def test_a_noisy_tenant_does_not_delay_a_quiet_one
    NOISY.times { |n| TenantJob.perform_later("noisy", n) }
    QUIET.times { |n| TenantJob.perform_later("quiet", n) }
    worker("--concurrency", "1") # so that no job overtakes another
    wait("all is done") { noted.size == NOISY + QUIET }
    last = noted.rindex("quiet") + 1
    assert_operator last, :<=, 3 * QUIET # 2 x QUIET is fair
  end

  def test_a_throttled_tenant_holds_back_no_other
    @broker.call("FILA.THROTTLE", "SET", "slow:acme", "CONCURRENCY", 1)
    file = "#{@broker.directory}/end"
    6.times { ThrottledJob.perform_later("acme", file) }
    3.times { ThrottledJob.perform_later("globex") }
    worker("--concurrency", "4")
    wait("one has begun, the others do not wait for it") { noted.include?("acme began") && noted.count("globex ended") == 3 }
    refute_includes noted, "acme ended"
    File.write(file, "")
    wait("all is done") { noted.grep(/ended/).size == 9 }
    running = 0
    assert_equal(1, noted.grep(/acme/).map { |line| running += line.end_with?("began") ? 1 : -1 }.max)
  end
end
