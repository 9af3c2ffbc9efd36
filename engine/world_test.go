package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// world is a stepper with shorthands. Its invariants are checked when its test ends.
type world struct {
	*Stepper
	t *testing.T
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	return openWorld(t, storage.NewMemory(), time.Unix(1_700_000_000, 0), change)
}

func openWorld(t *testing.T, store Store, now time.Time, change func(*Config)) *world {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := NewStepper(cfg, store, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Check(); err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
	return &world{Stepper: s, t: t}
}

// do runs a call until it is done.
func (w *world) do(call func(tx *Tx) error) error {
	w.t.Helper()
	task := &Task{Call: callFunc(call)}
	w.Do(task)
	if !task.Done() {
		w.t.Fatal("the task waits")
	}
	return task.Err()
}

func (w *world) must(call func(tx *Tx) error) {
	w.t.Helper()
	if err := w.do(call); err != nil {
		w.t.Fatal(err)
	}
}

// recoverInPlace recovers as after a failed commit, without one.
func (w *world) recoverInPlace() {
	w.t.Helper()
	count, err := w.machine.recoverInPlace()
	if err != nil {
		w.t.Fatal(err)
	}
	w.inBackground(count)
}

// millis is a duration as the settings of a queue have it.
func millis(d time.Duration) uint64 { return uint64(d.Milliseconds()) }

func (w *world) queue(name string, o QueueOptions) {
	w.t.Helper()
	w.must(func(tx *Tx) error { return tx.CreateQueue(name, o) })
}

func (w *world) enqueue(queue, key, payload string) ID {
	w.t.Helper()
	req := &Enqueue{Queue: queue, Key: key, Payload: []byte(payload)}
	if err := w.Prepare(req); err != nil {
		w.t.Fatal(err)
	}
	var id ID
	w.must(func(tx *Tx) (err error) { id, err = tx.Enqueue(req); return err })
	return id
}

func (w *world) lease(queue string, count int) []*Delivery {
	w.t.Helper()
	var ds []*Delivery
	req := &LeaseRequest{Queues: []string{queue}, Count: count, Block: -1}
	w.must(func(tx *Tx) (err error) { ds, err = tx.Lease(req); return err })
	for _, d := range ds {
		if _, err := w.Load([]*Delivery{d}); err != nil {
			w.t.Fatal(err)
		}
	}
	return ds
}

func payloads(ds []*Delivery) string {
	var all []string
	for _, d := range ds {
		all = append(all, string(d.Payload()))
	}
	return strings.Join(all, " ")
}

func (w *world) counts(queue string) Counts {
	w.t.Helper()
	var n Counts
	w.must(func(tx *Tx) (err error) { n, err = tx.QueueStats(queue); return err })
	return n
}

type callFunc func(tx *Tx) error

func (f callFunc) Apply(tx *Tx) error { return f(tx) }

func (w *world) cron(cr Cron) {
	w.t.Helper()
	if err := w.PrepareCron(&cr); err != nil {
		w.t.Fatal(err)
	}
	w.must(func(tx *Tx) error { return tx.SetCron(&cr) })
}

// 1_700_000_000 is 22:13:20: each minute begins 40 seconds after a round number.
func minutely(o CatchUp) Cron {
	return Cron{Name: "m", Expression: "* * * * *", CatchUp: o, Message: Enqueue{Queue: "q", Payload: []byte("x")}}
}

func recording() QueueOptions {
	return QueueOptions{Given: queueset.Given{queueset.Signals: 1}}
}
