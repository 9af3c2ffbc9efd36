package scripting

import (
	"errors"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// breakerScript fails when the header `fail` is there.
const breakerScript = `function on_enqueue(msg)
  if msg.headers.fail then
    error("told to")
  end
  return { fairness_key = "good" }
end`

type breakerSession struct {
	t    *testing.T
	hook *Hook
	now  time.Time
}

func (s *breakerSession) send(fail bool, wantKey string, wantErr error) {
	s.t.Helper()
	msg := benchMessage()
	if fail {
		msg.Headers = append(msg.Headers, storage.Header{Name: []byte("fail"), Value: []byte("1")})
	}
	d, err := s.hook.OnEnqueue(s.now, msg, nil, hook.Bounds{})
	if d.Key != wantKey {
		s.t.Errorf("decided %q, want %q", d.Key, wantKey)
	}
	if wantErr != nil && !errors.Is(err, wantErr) || (err == nil) != (wantKey == "good") {
		s.t.Errorf("error %v, want %v", err, wantErr)
	}
}

func (s *breakerSession) state(want hook.BreakerState, wantSkipped, wantOpened uint64) {
	s.t.Helper()
	if st := s.hook.Stats(s.now); st.State != want || st.Skipped != wantSkipped || st.Opened != wantOpened {
		s.t.Errorf("%v, %d skipped, opened %d times; want %v, %d, %d", st.State, st.Skipped, st.Opened, want, wantSkipped, wantOpened)
	}
}

func TestThreeErrorsInARowOpenTheBreaker(t *testing.T) {
	s := breakerSession{t, load(t, sandbox(t), hook.OnEnqueue, breakerScript), time.Unix(1_000_000, 0)}
	// Two in a row, however often, do not.
	for range 5 {
		s.send(true, "default", nil)
		s.send(true, "default", nil)
		s.send(false, "good", nil)
	}
	s.state(hook.BreakerClosed, 0, 0)
	for range 3 {
		s.send(true, "default", nil)
	}
	s.state(hook.BreakerOpen, 0, 1)
	s.send(false, "default", ErrBreakerOpen)
	s.now = s.now.Add(9 * time.Second)
	s.send(false, "default", ErrBreakerOpen)
	s.state(hook.BreakerOpen, 2, 1)
}

func TestOneTrialDecidesAfterTheCooldown(t *testing.T) {
	s := breakerSession{t, load(t, sandbox(t), hook.OnEnqueue, breakerScript), time.Unix(1_000_000, 0)}
	for range 3 {
		s.send(true, "default", nil)
	}
	s.now = s.now.Add(11 * time.Second)
	s.state(hook.BreakerTrial, 0, 1)
	s.send(true, "default", nil) // the trial fails: open again, for as long
	s.state(hook.BreakerOpen, 0, 2)
	s.send(false, "default", ErrBreakerOpen)
	s.now = s.now.Add(11 * time.Second)
	s.send(false, "good", nil)
	s.state(hook.BreakerClosed, 1, 2)
	// The count restarts at 0.
	s.send(true, "default", nil)
	s.send(true, "default", nil)
	s.send(false, "good", nil)
	s.state(hook.BreakerClosed, 1, 2)
}

func TestOnlyOneCallTries(t *testing.T) {
	b := breaker{cooldown: time.Second}
	now := time.Unix(1_000_000, 0)
	early, ok := b.enter(now)
	if early || !ok {
		t.Fatal("closed, and does not let a call through")
	}
	_, _ = b.enter(now)
	b.leave(now, false, true, 1)
	later := now.Add(time.Second)
	trial, ok := b.enter(later)
	if !trial || !ok {
		t.Fatal("no trial after the cooldown")
	}
	if _, ok := b.enter(later.Add(time.Hour)); ok {
		t.Error("two trials at the same time")
	}
	// A call from before the breaker opened comes back late: it decides nothing.
	b.leave(later, early, false, 1)
	if _, ok := b.enter(later); ok || b.state(later) != hook.BreakerTrial {
		t.Error("an old call has ended the trial")
	}
	b.leave(later, trial, false, 1)
	if trial, ok := b.enter(later); trial || !ok || b.state(later) != hook.BreakerClosed {
		t.Error("not closed after a trial that went well")
	}
}

func TestStatsTellHowAHookFares(t *testing.T) {
	s := breakerSession{t, load(t, sandbox(t), hook.OnEnqueue, breakerScript), time.Unix(1_000_000, 0)}
	s.send(false, "good", nil)
	s.send(true, "default", nil)
	s.send(false, "good", nil)
	st := s.hook.Stats(s.now)
	if st.Calls != 3 || st.Errors != 1 || st.Limits != 0 || st.Row != 0 {
		t.Errorf("%+v", st)
	}
	if st.LastError != "on_enqueue:3: told to" || st.LastLine != 3 || !st.LastAt.Equal(s.now) {
		t.Errorf("%q at line %d, %v", st.LastError, st.LastLine, st.LastAt)
	}
	n := st.Latency.Count()
	if n != 3 || st.LatencyMax <= 0 || st.Latency.Sum() < st.LatencyMax || st.Percentile(0.5) <= 0 || st.Percentile(1) > st.LatencyMax {
		t.Errorf("%d counted, %+v", n, st)
	}
	endless := load(t, sandbox(t), hook.OnEnqueue, "function on_enqueue() while true do end end")
	if _, err := endless.OnEnqueue(s.now, benchMessage(), nil, hook.Bounds{}); err == nil || endless.Stats(s.now).Limits != 1 {
		t.Errorf("%v, %+v", err, endless.Stats(s.now))
	}
}

func TestATrialRunCountsNothing(t *testing.T) {
	s := breakerSession{t, load(t, sandbox(t), hook.OnEnqueue, breakerScript), time.Unix(1_000_000, 0)}
	msg := benchMessage()
	for range 3 {
		s.send(true, "default", nil)
	}
	got := s.hook.Try(msg, nil, hook.Bounds{})
	if got.Err != nil || got.Enqueue.Key != "good" || got.Duration <= 0 || got.Instructions < 5 || got.Memory < 100 {
		t.Errorf("%+v", got)
	}
	again := s.hook.Try(msg, nil, hook.Bounds{})
	if again.Instructions != got.Instructions || again.Memory != got.Memory {
		t.Errorf("the same message took %d, %d and %d, %d", got.Instructions, got.Memory, again.Instructions, again.Memory)
	}
	s.state(hook.BreakerOpen, 0, 1)
	if st := s.hook.Stats(s.now); st.Calls != 3 {
		t.Errorf("%+v", st)
	}
}

func TestAHookAnswersForItsOwnKindOnly(t *testing.T) {
	h := load(t, sandbox(t), hook.OnEnqueue, breakerScript)
	if _, err := h.OnFailure(time.Now(), benchMessage(), nil, hook.Bounds{}); err == nil {
		t.Error("an on_enqueue script has decided a failure")
	}
	if h.Kind() != hook.OnEnqueue || h.Source() != breakerScript || h.Version() != "709895b225016a6a482c5e81afa0c09a14c11e7b" {
		t.Errorf("%v %s", h.Kind(), h.Version())
	}
}
