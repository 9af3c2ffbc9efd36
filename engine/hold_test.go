package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// A hold stops what names its throttle key until its end, to the millisecond, with a setting or without, and outlives a restart.
func TestAHoldEndsAtItsTime(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.throttle("tenant:*", ThrottleOptions{Concurrency: new(uint64(9))})
	keys := []string{"provider", "tenant:1"}
	for _, key := range keys {
		for range 2 {
			w.send(Enqueue{Queue: "q", Key: key, Meta: Meta{Throttles: []string{key}}, Payload: []byte(key)})
		}
		if ds := w.lease("q", 1); len(ds) != 1 { // its throttle set is looked up
			t.Fatal("nothing to lease")
		}
		version := w.core.order.Inside().Version()
		w.must(func(tx *Tx) error { return tx.Hold(key, 30*time.Second) })
		if w.core.order.Inside().Version() != version {
			t.Error("a hold makes throttle sets stale")
		}
	}
	w.must(func(tx *Tx) error { return tx.Hold("provider", time.Second) }) // the later end counts
	again := openWorld(t, store.Clone(), w.now, nil)
	for _, w := range []*world{w, again} {
		if ds := w.lease("q", 9); len(ds) != 0 {
			t.Fatalf("%d messages are delivered that are held", len(ds))
		}
		if i := w.key("q", "provider"); i.State != KeyHeld || !i.ReadyAt.Equal(w.now.Add(30*time.Second)) {
			t.Errorf("%v until %v: %s", i.State, i.ReadyAt, i.Reason)
		}
		w.sound()
		w.now = w.now.Add(30*time.Second - time.Millisecond)
		if ds := w.lease("q", 9); len(ds) != 0 {
			t.Fatalf("%d messages are delivered a millisecond before the end", len(ds))
		}
		w.now = w.now.Add(time.Millisecond)
		if ds := w.lease("q", 9); len(ds) < len(keys) {
			t.Errorf("%d messages are delivered at the end", len(ds))
		}
		w.sound()
		if i, ok := w.core.order.Throttle("provider"); ok {
			t.Errorf("a throttle without limits is left: %+v", i)
		}
	}
	if err := w.do(func(tx *Tx) error { return tx.Hold("tenant:*", time.Second) }); !errors.Is(err, ErrInvalid) {
		t.Errorf("hold of a pattern: %v", err)
	}
}

// A hold of a nack is for throttle keys of its message, and one too many ends the first.
func TestANackHoldsWhatItsMessageNames(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Holds = 1 })
	w.queue("q", QueueOptions{})
	w.adaptive(1, 10)
	w.send(Enqueue{Queue: "q", Key: "k", Meta: Meta{Throttles: []string{"p", "other"}}, Payload: []byte("x")})
	d := w.lease("q", 1)[0]
	nack := func(key string) error {
		req := &Nack{Queue: "q", Receipt: d.Receipt, Dead: true, Holds: []HoldFor{{Key: key, For: time.Minute}}}
		return w.do(func(tx *Tx) error { _, err := tx.Nack(req); return err })
	}
	if err := nack("third"); !errors.Is(err, ErrInvalid) || w.core.leases.byID[d.Receipt.ID] == nil {
		t.Fatalf("a throttle key that it does not name: %v", err)
	}
	if err := nack("p"); err != nil {
		t.Fatal(err)
	}
	w.wantLimit(7, 1)
	for key, before := range map[string]string{"other": "p", "p": "other"} { // whichever of the two ends first
		w.must(func(tx *Tx) error { return tx.Hold(before, time.Minute) })
		w.must(func(tx *Tx) error { return tx.Hold(key, 30*time.Second) })
		if i, _ := w.core.order.Throttle(before); !i.HeldUntil.IsZero() {
			t.Errorf("there are two holds, of one that is allowed: %+v", i)
		}
		if i, _ := w.core.order.Throttle(key); !i.HeldUntil.Equal(w.now.Add(30 * time.Second)) {
			t.Errorf("the new hold is not there: %+v", i)
		}
		w.must(func(tx *Tx) error { return tx.Hold(key, 0) })
	}
	w.sound()
}

// A nack that holds a throttle for no time opens none: that is the operator's.
func TestANackOpensNoHold(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.send(Enqueue{Queue: "q", Key: "k", Meta: Meta{Throttles: []string{"p"}}, Payload: []byte("x")})
	d := w.lease("q", 1)[0]
	w.must(func(tx *Tx) error { return tx.Hold("p", time.Minute) })
	w.must(func(tx *Tx) error {
		_, err := tx.Nack(&Nack{Queue: "q", Receipt: d.Receipt, Holds: []HoldFor{{Key: "p"}}})
		return err
	})
	if i, _ := w.core.order.Throttle("p"); !i.HeldUntil.Equal(w.now.Add(time.Minute)) {
		t.Errorf("the hold has ended: %+v", i)
	}
	w.sound()
}

// A throttle that is held without a hold, and a hold whose throttle is not held, are found (40).
func TestTheInvariantsFindAHoldThatIsNone(t *testing.T) {
	for what, break40 := range map[string]func(c *core){
		"":                              func(*core) {},
		"a throttle held without one":   func(c *core) { c.order.Hold("other", c.now+int64(time.Hour)) },
		"a throttle that was opened":    func(c *core) { c.order.Release("p") },
		"a throttle with another end":   func(c *core) { c.order.Hold("p", c.now+int64(time.Hour)) },
		"one hold more than is allowed": func(c *core) { c.cfg.Limits.Holds = 0 },
	} {
		s, err := NewStepper(DefaultConfig(), storage.NewMemory(), time.Unix(1_700_000_000, 0))
		if err != nil {
			t.Fatal(err)
		}
		s.Do(&Task{Call: callFunc(func(tx *Tx) error { return tx.Hold("p", time.Minute) })})
		break40(s.core)
		if err := s.Check(); (err == nil) != (what == "") || err != nil && !strings.Contains(err.Error(), "40") {
			t.Errorf("%q: %v", what, err)
		}
	}
}

// A hold that begins between two milliseconds ends with the one that its throttle shows.
func TestAHoldEndsWithAMillisecond(t *testing.T) {
	w := openWorld(t, storage.NewMemory(), time.Unix(1_700_000_000, 1), nil)
	w.must(func(tx *Tx) error { return tx.Hold("p", time.Second) })
	i, _ := w.core.order.Throttle("p")
	if want := time.Unix(1_700_000_001, int64(time.Millisecond)); !i.HeldUntil.Equal(want) {
		t.Errorf("held until %v, want %v", i.HeldUntil, want)
	}
}
