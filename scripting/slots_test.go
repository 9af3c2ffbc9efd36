package scripting

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/faisca/fila/internal/yield"

	"github.com/faisca/fila/internal/hook"
)

// Scripts that take long run in as many slots as there are, and end within twice
// their limit although they wait for each other; a script that does not take long
// needs none, and one that takes a little gets its turns.
func TestScriptsThatTakeLongTakeTurns(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Timeout, cfg.Failures = 200*time.Millisecond, ^uint32(0)
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
				start := time.Now()
				trial := endless.Try(benchMessage(), nil, hook.Bounds{})
				var e *Error
				if !errors.As(trial.Err, &e) || !e.Limit {
					t.Errorf("an endless script: %v", trial.Err)
				}
				if took := time.Since(start); took > 20*cfg.Timeout { // a busy machine
					t.Errorf("it took %v", took)
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

// Who has waited as long as it might have run is told so.
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
