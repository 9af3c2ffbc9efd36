package engine

import (
	"errors"
	"testing"
	"time"
)

func (w *world) runCron(name string) (id ID, err error) {
	w.t.Helper()
	req := &CronRun{Name: name}
	err = w.do(func(tx *Tx) error {
		ids, err := tx.RunCron(req)
		if err == nil {
			id = ids[0].ID
		}
		return err
	})
	return id, err
}

// A run enqueues the message of a tick, and changes neither the ticks nor their counts.
func TestARecurringMessageIsRunBetweenItsTicks(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.cron(minutely(CatchUpLast))
	w.Advance(10 * time.Second)
	before := w.cronInfo("m")
	id, err := w.runCron("m")
	if err != nil {
		t.Fatal(err)
	}
	ds := w.lease("q", 9)
	if len(ds) != 1 || ds[0].Receipt.ID != id || string(ds[0].Payload()) != "x" || !tickOf(ds[0]).Equal(time.Unix(1_700_000_010, 0)) {
		t.Fatalf("%d messages, %s, the run was %s", len(ds), tickOf(ds[0]), id)
	}
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[0].Receipt}); return err })
	if after := w.cronInfo("m"); !after.NextAt.Equal(before.NextAt) || after.Fired != before.Fired || after.Missed != before.Missed || !after.LastAt.Equal(before.LastAt) {
		t.Errorf("a run has changed %+v into %+v", before, after)
	}
	w.Advance(time.Minute)
	wantTicks(t, w.drained("q"), 40)
	w.sound()
}

func TestARunThatIsRefusedSaysWhy(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	if _, err := w.runCron("m"); !errors.Is(err, ErrInvalid) {
		t.Errorf("one that is not there: %v", err)
	}
	w.cron(minutely(CatchUpLast))
	w.must(func(tx *Tx) error { return tx.Pause("q", true, false, true) })
	if _, err := w.runCron("m"); !errors.Is(err, ErrPaused) {
		t.Errorf("in a paused queue: %v", err)
	}
	if i := w.cronInfo("m"); i.LastError != "" || i.Missed != 0 {
		t.Errorf("a run that is refused counts as a tick: %+v", i)
	}
	errs := make([]error, 1)
	w.must(func(tx *Tx) error {
		return tx.Exec([]Call{callFunc(func(tx *Tx) error { _, err := tx.RunCron(&CronRun{Name: "m"}); return err })}, errs)
	})
	if !errors.Is(errs[0], errWaits) {
		t.Errorf("in a transaction: %v", errs[0])
	}
}

// A run whose recurring message is set anew or deleted while its message is made goes by what holds
// then.
func TestARunGoesByWhatIsSetWhenItEnqueues(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	// meanwhile runs the recurring message, and makes a change after its message was made.
	meanwhile := func(change func(tx *Tx) error) error {
		w.cron(minutely(CatchUpLast))
		w.Advance(time.Second)
		req, changed := &CronRun{Name: "m"}, false
		err := w.do(func(tx *Tx) error {
			if req.run != nil && !changed {
				changed = true
				if err := change(tx); err != nil {
					return err
				}
			}
			_, err := tx.RunCron(req)
			return err
		})
		if !changed {
			t.Fatal("the message was never made")
		}
		return err
	}
	other := minutely(CatchUpLast)
	other.Message.Payload = []byte("new")
	if err := w.PrepareCron(&other); err != nil {
		t.Fatal(err)
	}
	if err := meanwhile(func(tx *Tx) error { return tx.SetCron(&other) }); err != nil {
		t.Fatal(err)
	}
	if ds := w.lease("q", 9); len(ds) != 1 || string(ds[0].Payload()) != "new" {
		t.Errorf("%d messages", len(ds))
	}
	if err := meanwhile(func(tx *Tx) error { _, err := tx.DeleteCron("m"); return err }); !errors.Is(err, ErrInvalid) {
		t.Errorf("one that was deleted: %v", err)
	}
	w.sound()
}

// The message of a tick holds its unique id until it is done, and ticks meanwhile enqueue nothing.
func TestATickFindsTheMessageOfAnEarlierOne(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{})
		w.cron(Cron{Name: "m", Expression: "* * * * *", Message: Enqueue{Queue: "q", Meta: Meta{Unique: "u"}, Payload: []byte("u")}})
		w.cron(Cron{Name: "other", Expression: "* * * * *", Message: Enqueue{Queue: "q", Payload: []byte("x")}})
		want := func(when string, ready int64, fired, skipped uint64) {
			t.Helper()
			i := w.cronInfo("m")
			if n := w.counts("q"); n.Ready != ready || i.Fired != fired || i.Skipped != skipped || i.Missed != 0 || i.Unique != "u" || i.LastError != "" {
				t.Errorf("%s, restarted %v: %d ready, %+v", when, restarted, n.Ready, i)
			}
		}
		again := func() {
			if restarted {
				w.restart()
			}
		}
		w.Advance(41 * time.Second)
		want("first tick", 2, 1, 0)
		again()
		w.Advance(2 * time.Minute)
		want("its message waits", 4, 1, 2)
		w.Advance(50 * time.Second)
		var first ID
		for _, d := range w.lease("q", 4) {
			if string(d.Payload()) == "u" {
				first = d.Receipt.ID
			}
		}
		w.Advance(time.Second)
		again()
		w.Advance(10 * time.Second)
		want("it is leased", 1, 1, 3)
		if id, err := w.runCron("m"); err != nil || id != first {
			t.Errorf("a run by hand gave %v, %v, want %v", id, err, first)
		}
		w.ackID(first)
		again()
		w.Advance(time.Minute)
		want("it is done", 6, 2, 3) // the three others have come back
	}
}

// What becomes of the id between the round and its result is not missed: here its message is acked.
func TestATickKnowsAnIDThatIsFreeSinceItsRoundBegan(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	first := w.unique("u", nil)
	w.cron(Cron{Name: "m", Expression: "* * * * *", Message: Enqueue{Queue: "q", Meta: Meta{Unique: "u"}, Payload: []byte("x")}})
	w.cron(Cron{Name: "n", Expression: "* * * * *", Message: Enqueue{Queue: "q", Meta: Meta{Unique: "u"}, Payload: []byte("x")}})
	w.lease("q", 1)
	w.ackID(first)
	w.Advance(41 * time.Second)
	m, n := w.cronInfo("m"), w.cronInfo("n")
	if c := w.counts("q"); c.Ready != 1 || m.Fired+n.Fired != 1 || m.Skipped+n.Skipped != 1 {
		t.Errorf("%d ready, %+v, %+v", c.Ready, m, n)
	}
}
