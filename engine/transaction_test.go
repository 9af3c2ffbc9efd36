package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// exec runs calls as a transaction and returns the errors of each.
func (w *world) exec(calls ...Call) []error {
	w.t.Helper()
	errs := make([]error, len(calls))
	w.must(func(tx *Tx) error { return tx.Exec(calls, errs) })
	return errs
}

// removals are all ways in which a call may remove a leased message of the queue "q".
func removals(id ID) map[string][]Call {
	r := Receipt{ID: id, Bare: true}
	one := func(call func(tx *Tx) error) []Call { return []Call{callFunc(call)} }
	cancel := &Cancel{Queue: "q", IDs: []ID{id}}
	release := callFunc(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{r}); return err })
	alter := func(o QueueOptions) Call { return callFunc(func(tx *Tx) error { return tx.AlterQueue("q", o) }) }
	nack := func(dead bool) Call {
		return callFunc(func(tx *Tx) error {
			_, err := tx.Nack(&Nack{Queue: "q", Receipt: r, Dead: dead, Delay: -1})
			return err
		})
	}
	purge := callFunc(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
	return map[string][]Call{
		"ACK":                    one(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{r}); return err }),
		"CANCEL":                 {&cancelling{cancel}},
		"NACK DEAD":              {nack(true)},
		"NACK DEAD, drops":       {alter(QueueOptions{NoDLQ: true}), nack(true)},
		"NACK, the last attempt": {alter(QueueOptions{Given: queueset.Given{queueset.MaxAttempts: 1}}), nack(false)},
		"PURGE":                  {purge},
		"RELEASE, PURGE":         {release, purge},
		"DELETE FORCE":           one(func(tx *Tx) error { return tx.DeleteQueue("q", true) }),
		"APPLY PRUNE FORCE": one(func(tx *Tx) error {
			_, err := tx.ApplyQueues(&QueueSet{Prune: true, Force: true})
			return err
		}),
	}
}

// cancelling is a Cancel with its preflight.
type cancelling struct{ req *Cancel }

func (c *cancelling) Preflight(tx *Tx) error { return tx.PreflightCancel(c.req) }

func (c *cancelling) Apply(tx *Tx) error { _, err := tx.Cancel(c.req); return err }

// leasing is a lease of a transaction.
func leasing(w *world, ds *[]*Delivery) Call {
	return &part{func(tx *Tx) error {
		return tx.PreflightLease(&LeaseRequest{Queues: []string{"q"}, Count: 10})
	}, func(tx *Tx) (err error) {
		*ds, err = tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 10})
		for _, d := range *ds {
			d.Release() // as a connection does that may keep nothing
		}
		return err
	}}
}

// part is a call with a preflight.
type part struct{ preflight, apply func(tx *Tx) error }

func (p *part) Preflight(tx *Tx) error { return p.preflight(tx) }
func (p *part) Apply(tx *Tx) error     { return p.apply(tx) }

// A message that a transaction leases and removes is in the reply, also when its payload is on disk only,
// and when no connection keeps it.
func TestATransactionShowsWhatItLeasesAndRemoves(t *testing.T) {
	for name := range removals(ID{}) {
		for _, stored := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stored: %v", name, stored), func(t *testing.T) {
				store := storage.NewMemory()
				w := openWorld(t, store, time.Unix(1_700_000_000, 0), func(c *Config) { c.BodyBytes = 0 })
				w.queue("q", QueueOptions{})
				id := w.enqueue("q", "k", "payload")
				if stored {
					w = openWorld(t, store, w.Now(), func(c *Config) { c.BodyBytes = 0 })
				}
				var ds []*Delivery
				for i, err := range w.exec(append([]Call{leasing(w, &ds)}, removals(id)[name]...)...) {
					if err != nil {
						t.Errorf("call %d: %v", i, err)
					}
				}
				if len(ds) != 1 {
					t.Fatalf("%d deliveries", len(ds))
				}
				if _, err := w.Load(ds); err != nil || string(ds[0].Payload()) != "payload" || !ds[0].Kept {
					t.Errorf("%v, payload %q, kept: %v", err, ds[0].Payload(), ds[0].Kept)
				}
				w.sound()
			})
		}
	}
}

// What is kept for the reply has a bound. Beyond it, the message stays leased.
func TestWhatATransactionKeepsForItsReplyIsBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.BodyBytes, c.ReplyBytes = 0, 2500 })
	w.queue("q", QueueOptions{})
	var calls []Call
	var ds []*Delivery
	calls = append(calls, leasing(w, &ds))
	for range 3 {
		id := w.enqueue("q", "k", strings.Repeat("x", 1000))
		calls = append(calls, callFunc(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{{ID: id, Bare: true}}); return err }))
	}
	if errs := w.exec(calls...); errs[1] != nil || errs[2] != nil || !errors.Is(errs[3], ErrTooBig) {
		t.Errorf("the calls were answered %v", errs)
	}
	if n := w.counts("q"); n.Leased != 1 || n.Ready != 0 {
		t.Errorf("%d leased, %d ready", n.Leased, n.Ready)
	}
}
