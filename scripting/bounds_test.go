package scripting

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// counting runs some 4 instructions a round, so that with 1 ms, which is 500,000 instructions at
// most, 1,000,000 rounds are too many on any machine.
const counting = `function on_enqueue(msg)
  local n = 0
  for i = 1, 1000000 do n = n + i % 7 end
  return { weight = 7 }
end`

func TestACallTakesAsLongAsItsQueueAllows(t *testing.T) {
	for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
		source := strings.NewReplacer("on_enqueue", kind.String()).Replace(counting)
		source = strings.Replace(source, "{ weight = 7 }", map[hook.Kind]string{hook.OnEnqueue: "{ weight = 7 }", hook.OnFailure: "{ action = 'dlq' }"}[kind], 1)
		for _, c := range []struct{ configured, queue, want time.Duration }{ // want: the limit that ends the call, 0: none
			{configured: time.Minute, queue: time.Millisecond, want: time.Millisecond},
			{configured: time.Millisecond, queue: time.Minute},
			{configured: time.Millisecond, want: time.Millisecond},
			{configured: time.Minute},
		} {
			h := load(t, forgetful(t, c.configured), kind, source)
			err := decide(h, hook.Bounds{Timeout: c.queue})
			if got := limited(err); got != (c.want > 0) {
				t.Errorf("%v, %v configured and %v of the queue: %v", kind, c.configured, c.queue, err)
			}
			if c.want > 0 && err != nil && !strings.Contains(err.Error(), errInstructions.Error()) && !strings.Contains(err.Error(), c.want.String()) {
				t.Errorf("%v names another limit than %v", err, c.want)
			}
		}
	}
}

func TestACallAllocatesAsMuchAsItsQueueAllows(t *testing.T) {
	s := forgetful(t, time.Minute)
	for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
		h := load(t, s, kind, fmt.Sprintf("function %v(msg) local t = {} for i = 1, 4000 do t[i] = {} end end", kind))
		needs := int(h.Try(benchMessage(), nil, hook.Bounds{}).Memory)
		if needs < 256<<10 || needs > s.cfg.Memory {
			t.Fatalf("the script takes %d bytes", needs)
		}
		if err := decide(h, hook.Bounds{Memory: needs}); err != nil {
			t.Errorf("%v with the %d bytes that it needs: %v", kind, needs, err)
		}
		err := decide(h, hook.Bounds{Memory: needs - 1})
		if !limited(err) || !strings.Contains(err.Error(), fmt.Sprintf("the memory limit of %d bytes", needs-1)) {
			t.Errorf("%v with one byte less: %v", kind, err)
		}
	}
	more := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) local t = {} for i = 1, 8000 do t[i] = {} end end")
	if !limited(decide(more, hook.Bounds{})) {
		t.Error("more than the configuration allows")
	}
	if err := decide(more, hook.Bounds{Memory: 4 << 20}); err != nil {
		t.Errorf("the queue allows it: %v", err)
	}
}

func TestTheBreakerOpensAfterAsManyErrorsAsTheQueueSays(t *testing.T) {
	for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
		for _, errs := range []uint32{1, 2, 3, 10} {
			h := load(t, sandbox(t), kind, fmt.Sprintf("function %v(msg) error('no') end", kind))
			for i := range errs {
				if st := h.Stats(time.Time{}); st.State != hook.BreakerClosed {
					t.Fatalf("%v: %v after %d errors, want %d", kind, st.State, i, errs)
				}
				_ = decide(h, hook.Bounds{Errors: errs})
			}
			if st := h.Stats(time.Time{}); st.Opened != 1 || st.Row != errs {
				t.Errorf("%v: opened %d times after %d errors in a row, want once after %d", kind, st.Opened, st.Row, errs)
			}
		}
	}
}

// The bounds are those of each call, so that a change meets hooks that are loaded.
func TestChangedBoundsApplyToTheNextCall(t *testing.T) {
	h := load(t, forgetful(t, time.Minute), hook.OnEnqueue, counting)
	for i, c := range []struct {
		within hook.Bounds
		fails  bool
	}{
		{hook.Bounds{}, false}, {hook.Bounds{Timeout: time.Millisecond}, true}, {hook.Bounds{}, false},
		{hook.Bounds{Timeout: time.Millisecond, Errors: 5}, true}, {hook.Bounds{Timeout: time.Millisecond, Errors: 5}, true},
	} {
		if err := decide(h, c.within); (err != nil) != c.fails {
			t.Errorf("call %d within %+v: %v", i, c.within, err)
		}
	}
	_ = decide(h, hook.Bounds{Timeout: time.Millisecond, Errors: 2}) // two in a row were less than 5; 3 are not less than 2
	if st := h.Stats(time.Time{}); st.Opened != 1 || st.Row != 3 {
		t.Errorf("opened %d times with %d errors in a row", st.Opened, st.Row)
	}
}

// What a source does before there is a message has the bounds of the queue that it is for.
func TestASourceIsLoadedWithinTheBoundsOfItsQueue(t *testing.T) {
	source := "local n = 0 for i = 1, 1000000 do n = n + i % 7 end function on_enqueue(msg) return { weight = 7 } end"
	short, long := hook.Bounds{Timeout: time.Millisecond}, hook.Bounds{Timeout: time.Minute}
	s := forgetful(t, time.Millisecond)
	for within, fails := range map[hook.Bounds]bool{{}: true, short: true, long: false} {
		if _, err := s.Load(hook.Caller{Queue: within}, hook.OnEnqueue, source); limited(err) != fails {
			t.Errorf("loaded within %+v: %v", within, err)
		}
	}
	// A start accepts it whatever the bounds are by now, so that it works again once they are raised.
	h, err := s.Restore(hook.OnEnqueue, source)
	if err != nil {
		t.Fatal(err)
	}
	if err := decide(h, short); !limited(err) {
		t.Errorf("a call within too short a time: %v", err)
	}
	if err := decide(h, long); err != nil {
		t.Errorf("a call with enough time: %v", err)
	}
}

// A decision that could not be applied is an error of a call that succeeded: no outcome is taken
// back for it.
func TestEachCallHasOneOutcome(t *testing.T) {
	h := load(t, patientSandbox(t, time.Minute), hook.OnEnqueue, `function on_enqueue(msg)
  if msg.weight == 2 then error("no") end
  while msg.weight == 3 do end
  return { delay_ms = msg.weight }
end`)
	at := time.Unix(1_000_000, 0)
	send := func(weight uint32) {
		msg := benchMessage()
		msg.Weight = weight
		_, _ = h.OnEnqueue(at, msg, nil, hook.Bounds{Timeout: 50 * time.Millisecond, Errors: 2})
	}
	want := func(want hook.Outcomes, errs uint64) {
		t.Helper()
		st := h.Stats(at)
		if got := st.Outcomes(); got != want || st.Errors != errs {
			t.Errorf("%+v, %d errors, want %+v, %d", got, st.Errors, want, errs)
		}
	}
	send(1)
	want(hook.Outcomes{OK: 1}, 0)
	h.Rejected(at, "too late")
	want(hook.Outcomes{OK: 1}, 1)
	send(1)
	want(hook.Outcomes{OK: 1, Recalled: 1}, 1)
	h.Rejected(at, "too late")
	send(2)
	want(hook.Outcomes{OK: 1, Recalled: 1, Error: 1}, 3)
	send(3)
	want(hook.Outcomes{OK: 1, Recalled: 1, Error: 1, Limit: 1}, 4)
	send(1)
	want(hook.Outcomes{OK: 1, Recalled: 1, Error: 1, Limit: 1, Skipped: 1}, 4)
}

// decide runs a hook of either kind.
func decide(h hook.Hook, within hook.Bounds) error {
	var err error
	if msg, at := benchMessage(), time.Unix(1_000_000, 0); h.Kind() == hook.OnEnqueue {
		_, err = h.OnEnqueue(at, msg, nil, within)
	} else {
		msg.ID = "0190c0de"
		_, err = h.OnFailure(at, msg, nil, within)
	}
	return err
}

// forgetful is a sandbox that recalls no decision: each call runs the script.
func forgetful(t *testing.T, timeout time.Duration) *Sandbox {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Timeout, cfg.Memo = timeout, 0
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
