package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// boundHook notes the bounds of its calls.
type boundHook struct {
	simHook
	calls *[]hook.Bounds
}

func (h boundHook) OnEnqueue(_ time.Time, _ *hook.Message, _ hook.View, within hook.Bounds) (hook.EnqueueDecision, error) {
	*h.calls = append(*h.calls, within)
	return hook.EnqueueDecision{}, nil
}

func (h boundHook) OnFailure(_ time.Time, _ *hook.Message, _ hook.View, within hook.Bounds) (hook.FailureDecision, error) {
	*h.calls = append(*h.calls, within)
	return hook.FailureDecision{}, nil
}

// boundScripts notes the bounds of the calls of all hooks.
type boundScripts struct{ calls *[]hook.Bounds }

func (s boundScripts) Load(_ hook.Caller, kind hook.Kind, _ string) (hook.Hook, error) {
	return boundHook{simHook{kind}, s.calls}, nil
}

func (s boundScripts) Restore(kind hook.Kind, source string) (hook.Hook, error) {
	return s.Load(hook.Caller{}, kind, source)
}

func hookLimits(timeout, memory, errs uint64) QueueOptions {
	return QueueOptions{NoDLQ: true, Given: queueset.Given{queueset.LuaTimeout: timeout, queueset.LuaMemory: memory, queueset.BreakerErrors: errs}}
}

func TestHooksRunWithinTheLimitsOfTheirQueue(t *testing.T) {
	store := storage.NewMemory()
	var calls []hook.Bounds
	scripts := func(c *Config) { c.Scripts = boundScripts{&calls} }
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), scripts)
	// run makes both hooks of the queue run, and expects them to have run within bounds.
	run := func(want hook.Bounds) {
		t.Helper()
		calls = nil
		w.enqueue("q", "k", "x")
		w.nack(&Nack{Queue: "q", Receipt: w.lease("q", 1)[0].Receipt, Delay: -1})
		w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
		if len(calls) != 2 || calls[0] != want || calls[1] != want {
			t.Errorf("calls within %+v, want two within %+v", calls, want)
		}
		if got := w.Snapshot().Bounds("q"); got != want {
			t.Errorf("sources are loaded within %+v, want %+v", got, want)
		}
	}
	alter := func(o QueueOptions) { w.must(func(tx *Tx) error { return tx.AlterQueue("q", o) }) }

	w.queue("q", hookLimits(20, 2<<20, 7))
	for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
		h, err := w.CompileScript(hook.Caller{}, kind, "")
		if err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { return tx.LoadScript("q", h, "") })
	}
	run(hook.Bounds{Timeout: 20 * time.Millisecond, Memory: 2 << 20, Errors: 7})
	alter(hookLimits(30, 3<<20, 8))
	run(hook.Bounds{Timeout: 30 * time.Millisecond, Memory: 3 << 20, Errors: 8})
	alter(QueueOptions{Given: queueset.Given{queueset.BreakerErrors: 1}})
	run(hook.Bounds{Timeout: 30 * time.Millisecond, Memory: 3 << 20, Errors: 1})

	w = openWorld(t, store, w.Now(), scripts) // a restart
	run(hook.Bounds{Timeout: 30 * time.Millisecond, Memory: 3 << 20, Errors: 1})
	store.FailCommits(errors.New("no space left")) // what was not written is not in force after a repair
	if err := w.do(func(tx *Tx) error { return tx.AlterQueue("q", hookLimits(1, 1<<20, 9)) }); err == nil {
		t.Error("altered without a store")
	}
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	run(hook.Bounds{Timeout: 30 * time.Millisecond, Memory: 3 << 20, Errors: 1})

	alter(hookLimits(0, 0, 0)) // those of the configuration
	run(hook.Bounds{})
	set := QueueSet{Queues: []QueueSpec{{Name: "q", Options: hookLimits(40, 0, 0)}}}
	if _, err := w.applyQueues(set); err != nil {
		t.Fatal(err)
	}
	run(hook.Bounds{Timeout: 40 * time.Millisecond})
	set.Queues[0].Options = QueueOptions{NoDLQ: true} // what a definition does not give is the default
	if plan, err := w.applyQueues(set); err != nil || plan != "alter q lua_timeout_ms:40>0" {
		t.Errorf("%q, %v", plan, err)
	}
	run(hook.Bounds{})
}

func TestAQueueThatIsMadeAgainHasNotTheLimitsOfTheFirst(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", hookLimits(20, 2<<20, 7))
	if n := w.Snapshot().Hooks(); n != 1 {
		t.Errorf("%d queues with limits", n)
	}
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q", false) })
	w.queue("q", QueueOptions{})
	if got := w.Snapshot().Bounds("q"); got != (hook.Bounds{}) || w.Snapshot().Hooks() != 0 {
		t.Errorf("%+v", got)
	}
}

func TestLimitsOfHooksHaveBounds(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for s, row := range queueset.All() {
		if !row.Configured {
			continue
		}
		for n, ok := range map[uint64]bool{
			0: true, uint64(row.Min): true, uint64(row.Max): true, uint64(row.Max) + 1: false, uint64(row.Min) - 1: row.Min == 1,
		} {
			err := w.do(func(tx *Tx) error { return tx.AlterQueue("q", QueueOptions{Given: queueset.Given{s: n}}) })
			if (err == nil) != ok || err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("%s %d: %v", row.Token, n, err)
			}
		}
	}
}
