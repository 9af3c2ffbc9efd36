package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

const jitterBackoff = time.Second

// failTogether fails n messages of a queue in one turn and returns the delay of each.
func (w *world) failTogether(n int, nack Nack) (pauses []time.Duration) {
	w.t.Helper()
	for range n {
		w.enqueue("q", "k", "m")
	}
	for _, d := range w.lease("q", n) {
		nack.Queue, nack.Receipt = "q", d.Receipt
		pauses = append(pauses, w.nack(&nack).ReadyAt.Sub(w.Now()))
	}
	if len(pauses) != n {
		w.t.Fatalf("%d of %d messages failed", len(pauses), n)
	}
	return pauses
}

func jittered(percent uint32) QueueOptions {
	return QueueOptions{Given: queueset.Given{queueset.Backoff: millis(jitterBackoff), queueset.MaxBackoff: millis(jitterBackoff), queueset.BackoffJitter: uint64(percent)}}
}

func TestRetriesAreSpreadBelowTheBackoff(t *testing.T) {
	const messages = 200
	for _, percent := range []uint32{1, 40, 100} {
		w := newWorld(t, nil)
		w.queue("q", jittered(percent))
		pauses := w.failTogether(messages, Nack{Delay: -1})
		slices.Sort(pauses)
		width := jitterBackoff * time.Duration(percent) / 100
		least, most := pauses[0], pauses[messages-1]
		if least < jitterBackoff-width || most > jitterBackoff {
			t.Errorf("%d %%: pauses from %s to %s", percent, least, most)
		}
		if least > jitterBackoff-width*9/10 || most < jitterBackoff-width/10 {
			t.Errorf("%d %%: pauses from %s to %s do not use the range", percent, least, most)
		}
		if different := len(slices.Compact(pauses)); different < messages*9/10 {
			t.Errorf("%d %%: %d of %d pauses differ", percent, different, messages)
		}
	}
}

func TestWithoutJitterADelayIsTheBackoff(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", jittered(0))
	for _, pause := range w.failTogether(20, Nack{Delay: -1}) {
		if pause != jitterBackoff {
			t.Errorf("without jitter: %s", pause)
		}
	}
}

func TestJitterLeavesExplicitDelaysAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", jittered(100))
	for _, pause := range w.failTogether(20, Nack{Delay: 77 * time.Millisecond}) {
		if pause != 77*time.Millisecond {
			t.Errorf("DELAY: %s", pause)
		}
	}
	q := w.core.queues.byName["q"]
	if _, pause, _ := w.core.failureOutcome(&message{key: &fairKey{queue: q}}, 1, &hook.FailureDecision{Delay: new(55 * time.Millisecond)}); pause != 55*time.Millisecond {
		t.Errorf("the pause of a hook: %s", pause)
	}
}

func TestJitterIsAFunctionOfTheSeed(t *testing.T) {
	pauses := func(seed uint64) []time.Duration {
		w := newWorld(t, func(c *Config) { c.Seed = seed })
		w.queue("q", jittered(50))
		return w.failTogether(20, Nack{Delay: -1})
	}
	if !slices.Equal(pauses(1), pauses(1)) {
		t.Error("the same seed gives other pauses")
	}
	if slices.Equal(pauses(1), pauses(2)) {
		t.Error("another seed gives the same pauses")
	}
}

// The delay is part of the record: a start does not draw it again.
func TestARetryDelaySurvivesARestart(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", jittered(80))
	pause := w.failTogether(1, Nack{Delay: -1})[0]
	if pause >= jitterBackoff {
		t.Fatalf("the pause is %s", pause)
	}
	again := openWorld(t, store.Clone(), w.Now(), nil)
	if got := again.core.queues.byName["q"].set.Values[queueset.BackoffJitter]; got != 80 {
		t.Errorf("the queue's jitter is %d after a restart", got)
	}
	again.Advance(pause - 1)
	if got := again.lease("q", 1); len(got) != 0 {
		t.Error("ready before its time")
	}
	again.Advance(1)
	if got := again.lease("q", 1); len(got) != 1 {
		t.Error("not ready at its time")
	}
}

func TestJitterIsAPercentage(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", jittered(100))
	if err := w.do(func(tx *Tx) error {
		return tx.AlterQueue("q", QueueOptions{Given: queueset.Given{queueset.BackoffJitter: 101}})
	}); !errors.Is(err, ErrInvalid) {
		t.Errorf("101 %%: %v", err)
	}
	w.must(func(tx *Tx) error {
		return tx.AlterQueue("q", QueueOptions{Given: queueset.Given{queueset.BackoffJitter: 0}})
	})
	if got := w.core.queues.byName["q"].set.Values[queueset.BackoffJitter]; got != 0 {
		t.Errorf("it is %d", got)
	}
}
