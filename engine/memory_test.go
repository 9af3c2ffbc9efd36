package engine

import (
	"errors"
	"testing"
	"time"
)

// While there is no memory for more, what stores something new is refused, and what frees some is done. Recurring
// messages wait, and their rounds do not follow one another without a pause.
func TestWithoutMemoryWhatIsNewIsRefused(t *testing.T) {
	now := Memory{Used: 500, Limit: 1000}
	w := newWorld(t, func(c *Config) { c.Memory = func() Memory { return now } })
	w.queue("q", QueueOptions{})
	w.enqueue("q", "k", "before")
	w.cron(minutely(CatchUpAll))
	look := func(full bool) {
		now.Full = full
		w.core.lookAtMemory()
	}
	now.Limit = 1 << 30
	if look(true); w.core.health.memory.Full {
		t.Error("it is full with little stored")
	}
	now.Limit = 1000
	look(true)
	req := &Enqueue{Queue: "q", Key: "new"}
	if err := w.Prepare(req); err != nil {
		t.Fatal(err)
	}
	err := w.do(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	if !errors.Is(err, ErrMemory) || !errors.Is(err, ErrMisconf) {
		t.Errorf("an enqueue: %v", err)
	}
	var stats Stats
	w.must(func(tx *Tx) error { stats = tx.Stats(); return nil })
	if !stats.Writable || !stats.Memory.Full || stats.Memory.Limit != 1000 || stats.InUse <= 0 {
		t.Errorf("stats %+v", stats)
	}
	w.Advance(5 * time.Minute)
	before := w.core.health.counters.turns
	w.Advance(time.Minute)
	if n := w.core.health.counters.turns - before; n > 5*60 {
		t.Errorf("%d turns in a minute in which nothing can be done", n)
	}
	ds := w.lease("q", 10)
	if got := payloads(ds); got != "before" {
		t.Fatalf("leased %q", got)
	}
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[0].Receipt}); return err })
	look(false)
	w.Advance(2 * time.Second)
	if n := w.counts("q"); n.Ready == 0 {
		t.Error("no tick is made up for")
	}
}
