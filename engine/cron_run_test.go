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
