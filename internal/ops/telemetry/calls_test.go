package telemetry

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/testkit"
)

func TestFiguresOfACommandAreReadOffItsHistogram(t *testing.T) {
	m := NewCalls(1)
	for range 99 {
		m.Called(1, 0, 10*time.Microsecond, "")
	}
	m.Called(2, 0, 3*time.Millisecond, "ERR")
	got := m.Totals(0)
	if got.Calls != 100 || got.Failed != 1 || got.Took.Sum() != 99*10*time.Microsecond+3*time.Millisecond {
		t.Errorf("%d calls, %d failed, %v", got.Calls, got.Failed, got.Took.Sum())
	}
	for share, least := range map[float64]time.Duration{0.5: 10 * time.Microsecond, 0.99: 10 * time.Microsecond, 1: 3 * time.Millisecond} {
		if q := got.Took.Quantile(share); q < least || q > least*6/5 {
			t.Errorf("quantile %v is %v, want at least %v", share, q, least)
		}
	}
	want := []Step{{16, 99}, {32, 99}, {64, 99}, {128, 99}, {256, 99}, {512, 99}, {1024, 99}, {2048, 99}, {4096, 100}}
	if steps := got.Steps(); !slices.Equal(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
	m.Reset()
	if got := m.Totals(0); got.Calls != 0 || got.Took.Quantile(0.5) != 0 || len(got.Steps()) != 0 {
		t.Errorf("after a reset: %d calls, %v", got.Calls, got.Steps())
	}
}

func TestStepsAreBoundedAndCountEveryCall(t *testing.T) {
	m := NewCalls(1)
	m.Called(1, 0, 0, "")
	m.Called(1, 0, math.MaxInt64, "")
	got := m.Totals(0)
	steps := got.Steps()
	if len(steps) != StepsMax || steps[0] != (Step{1, 1}) || steps[StepsMax-1].Calls != 2 {
		t.Errorf("%d steps, at most %d: %v", len(steps), StepsMax, steps)
	}
}

func TestTurnsAndCommitsAreCountedWhateverTheThreshold(t *testing.T) {
	l := NewLatency(time.Now, 0)
	l.Observe(engine.ActivityTurn, time.Millisecond)
	l.Observe(engine.ActivityCommit, time.Second)
	l.Observe(engine.ActivityCommit, time.Second)
	turns, commits := l.Durations()
	if turns.Count() != 1 || turns.Sum() != time.Millisecond || commits.Count() != 2 || commits.Sum() != 2*time.Second || len(l.Names()) != 0 {
		t.Errorf("%d turns of %v, %d commits of %v, events %v", turns.Count(), turns.Sum(), commits.Count(), commits.Sum(), l.Names())
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	m := NewCalls(1)
	m.Called(1, 0, time.Second, "")
	if n := testkit.Allocations(100, func() { m.Called(1, 0, time.Millisecond, "") }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// The overhead of counting, which every command pays.
func BenchmarkCounting(b *testing.B) {
	m := NewCalls(1)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Called(1, 0, 70*time.Microsecond, "")
		}
	})
}

func TestAResetHidesWhatWasBeforeAndNoCounterGoesBack(t *testing.T) {
	m := NewCalls(2)
	m.Called(1, 0, time.Millisecond, "ERR")
	m.Slow(1, 0)
	m.Rejected(2, 1, "NOPERM")
	m.Reset()
	for command := range 2 {
		if got := m.Totals(command); got.Calls+got.Failed+got.Rejected+got.Slow != 0 || got.Took.Sum() != 0 {
			t.Errorf("command %d after a reset: %+v", command, got)
		}
	}
	if codes, _ := m.Errors(); len(codes) != 0 {
		t.Errorf("codes after a reset: %v", codes)
	}
	m.Called(3, 0, time.Second, "ERR")
	if got := m.Totals(0); got.Calls != 1 || got.Failed != 1 || got.Slow != 0 || got.Took.Sum() != time.Second {
		t.Errorf("since the reset: %d calls, %d failed, %d slow, %v", got.Calls, got.Failed, got.Slow, got.Took.Sum())
	}
	if _, counts := m.Errors(); !maps.Equal(counts, map[string]uint64{"ERR": 1}) {
		t.Errorf("codes since the reset: %v", counts)
	}
	if got := m.All(0); got.Calls != 2 || got.Failed != 2 || got.Slow != 1 || got.Took.Sum() != time.Second+time.Millisecond {
		t.Errorf("since the start: %d calls, %d failed, %d slow, %v", got.Calls, got.Failed, got.Slow, got.Took.Sum())
	}
	if all := m.AllErrors(); m.All(1).Rejected != 1 || !maps.Equal(all, map[string]uint64{"ERR": 2, "NOPERM": 1}) {
		t.Errorf("codes since the start: %v, %d rejected", all, m.All(1).Rejected)
	}
}
