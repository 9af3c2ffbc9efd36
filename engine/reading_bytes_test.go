package engine

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/engine/internal/failures"
	"github.com/faisca/fila/engine/search"
)

// bodiesOf returns the bytes of the records that a look-up retains.
func bodiesOf(found []*foundMessage) (n int) {
	for _, f := range found {
		if f != nil {
			n += len(f.m.body)
		}
	}
	return n
}

// A look-up that only changes messages retains no payloads, whatever their number.
func TestLookingUpToChangeKeepsNoPayload(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	payload := strings.Repeat("x", 64<<10)
	var ids []ID
	for range 11 {
		ids = append(ids, w.enqueue("q", "k", payload))
	}
	kept, looked := 0, 0
	seen := func(l *lookup) {
		if l != nil && l.done {
			kept, looked = kept+bodiesOf(l.found), looked+len(l.found)
		}
	}
	cancel := &Cancel{Queue: "q", IDs: ids[:10]}
	w.must(func(tx *Tx) error {
		seen(cancel.look)
		_, err := tx.Cancel(cancel)
		return err
	})
	put := &Reschedule{Queue: "q", ID: ids[10]}
	w.must(func(tx *Tx) error {
		seen(put.look)
		_, err := tx.Reschedule(put)
		return err
	})
	if looked != 11 || kept != 0 {
		t.Errorf("%d bytes of %d messages were kept", kept, looked)
	}
	if got := w.lease("q", 2); payloads(got) != payload {
		t.Error("the message that was rescheduled has lost its payload")
	}
}

// The messages that a transaction shows are in memory together: up to ReplyBytes are
// allowed, and one byte more refuses the transaction.
func TestATransactionShowsNoMoreThanReplyBytes(t *testing.T) {
	for over, refused := range []bool{false, true} {
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{})
		var gets []Call
		shown := 0
		for range 3 {
			get := &Get{Queue: "q", ID: w.enqueue("q", "k", "payload")}
			gets = append(gets, &getCall{get})
			w.must(func(tx *Tx) error {
				v, err := tx.Get(get)
				if v != nil {
					shown += v.RecordBytes()
				}
				return err
			})
		}
		w.core.cfg.ReplyBytes = shown - over
		calls := append(slices.Clone(gets), callFunc(func(tx *Tx) error { return tx.DeleteQueue("q", true) }))
		errs := make([]error, len(calls))
		err := w.do(func(tx *Tx) error { return tx.Exec(calls, errs) })
		if errors.Is(err, ErrTooBig) != refused {
			t.Errorf("%d bytes too many: %v", over, err)
		}
		if _, there := w.core.queues.byName["q"]; there != refused {
			t.Errorf("%d bytes too many: the queue is there: %v", over, there)
		}
	}
}

type getCall struct{ req *Get }

func (c *getCall) Preflight(tx *Tx) error { return tx.PreflightGet(c.req) }
func (c *getCall) Apply(tx *Tx) error {
	_, err := tx.Get(c.req)
	return err
}

// The bytes counted for a message of a page, beside its record, are at least what it takes.
func TestAViewTakesNoMoreThanIsCounted(t *testing.T) {
	size := func(v any) int { return int(reflect.TypeOf(v).Size()) }
	if n := size(foundMessage{}) + size(message{}) + size(View{}) + size(Death{}) + size(failures.Failures{}); n > search.ViewBytes {
		t.Errorf("%d bytes, %d are counted", n, search.ViewBytes)
	}
}
