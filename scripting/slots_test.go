package scripting

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/yield"

	"github.com/faisca/fila/internal/hook"
)

// Scripts that take long run in as many slots as there are, and end although they wait for
// each other; a script that does not take long needs none, and one that takes a little gets
// its turns.
func TestScriptsThatTakeLongTakeTurns(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Timeout, cfg.Failures = 500*time.Millisecond, ^uint32(0)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.slots = make(slots, 1)
	s.slots <- &slot{yield: yield.Processor}
	endless := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) while true do end end")
	longer := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) local n = 0 for i = 1, 20000 do n = n + i end return { weight = 7 } end")
	tenant := load(t, s, hook.OnEnqueue, tenantScript(t))
	end := make(chan struct{})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				trial := endless.Try(benchMessage(), nil, hook.Bounds{})
				var e *Error
				if !errors.As(trial.Err, &e) || !e.Limit {
					t.Errorf("an endless script: %v", trial.Err)
				}
			}
		})
	}
	for range 5 {
		if trial := longer.Try(benchMessage(), nil, hook.Bounds{}); trial.Err != nil || trial.Enqueue.Weight != 7 {
			t.Errorf("a script that takes a little: %+v", trial)
		}
		if trial := tenant.Try(benchMessage(), nil, hook.Bounds{}); trial.Err != nil {
			t.Error(trial.Err)
		}
	}
	close(end)
	group.Wait()
	if len(s.slots) != 1 {
		t.Error("a slot is taken and no script runs")
	}
}

// A script ends within twice its limit although it waits for others.
func TestAScriptThatWaitsEndsWithinTwiceItsLimit(t *testing.T) {
	const us = time.Microsecond
	cfg := DefaultConfig() // 10 ms
	for _, c := range []struct {
		name   string
		others time.Duration // how long they keep the slot each time; 0: for good
		err    error
	}{
		{name: "the slot never comes", err: errSlotWait},
		{name: "the slot comes late", others: 2000 * us, err: errSlotWait},
		{name: "turns of half the length", others: slotTurn / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			within := cfg.bounds(hook.Bounds{})
			b := newBudget()
			b.reset(&within)
			b.slots = make(slots) // each turn needs another that hands it over
			ended := make(chan struct{})
			var others sync.WaitGroup
			others.Go(func() {
				for c.others > 0 {
					time.Sleep(c.others)
					select {
					case b.slots <- &slot{yield: func() {}}:
					case <-ended:
						return
					}
					select {
					case <-b.slots:
					case <-ended:
						return
					}
				}
			})
			b.restart(1 << 40)
			start := time.Now()
			for b.Done() == nil {
				if b.left == 1 { // the stride's last instruction
					time.Sleep(us)
				}
			}
			if took, most := time.Since(start), 2*cfg.Timeout+slotTurn; took > most {
				t.Errorf("%s: it ended after %v, want at most %v", c.name, took, most)
			}
			if waited := errors.Is(b.Err(), errSlotWait); waited != (c.err != nil) {
				t.Errorf("%s: it ended with %v", c.name, b.Err())
			}
			close(ended)
			others.Wait()
		})
	}
}

// A script that has waited as long as it may run fails with an error that says so.
func TestWaitingForASlotEnds(t *testing.T) {
	s := sandbox(t)
	endless := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) while true do end end")
	s.slots = make(slots, 1) // and it never comes
	for len(s.idle) > 0 {
		<-s.idle // a machine that knows the slots there were
	}
	trial := endless.Try(benchMessage(), nil, hook.Bounds{})
	var e *Error
	if !errors.As(trial.Err, &e) || !e.Limit || e.Text != "on_enqueue:1: "+errSlotWait.Error() && e.Text != "on_enqueue: "+errSlotWait.Error() {
		t.Errorf("%v", trial.Err)
	}
	if trial.Duration > s.cfg.Timeout {
		t.Errorf("waiting counts as its time: %v", trial.Duration)
	}
	if len(s.slots) != 0 {
		t.Error("it has left a slot that it did not have")
	}
}
