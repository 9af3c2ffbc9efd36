package engine

import (
	"fmt"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Ack deletes the messages whose live leases the receipts name, and returns how many there
// were. Receipts without a live lease change nothing and are not counted, so a repeated Ack
// is harmless. The error is that of an unknown queue, or ErrMisconf while the store takes
// no writes.
func (tx *Tx) Ack(queue string, receipts []Receipt) (int, error) {
	return tx.AckWith(queue, receipts, AckOptions{})
}

// AckOptions say more about an ack than that the work is done.
type AckOptions struct {
	Used   *int64 // what the budgets of each message are settled with, 0 to credit.ChargeMax; nil: its charge
	Result []byte // for Result, at most Limits.Result; empty but not nil: an empty one; nil: none
}

// AckWith is Ack with options. An ack is never refused for lack of credits. A result that is too
// large is ErrTooBig, and then no message is acked.
func (tx *Tx) AckWith(queue string, receipts []Receipt, o AckOptions) (int, error) {
	if n, most := len(o.Result), tx.core.cfg.Limits.Result; n > most {
		return 0, fmt.Errorf("%w: RESULT of %d bytes, the limit is %d", ErrTooBig, n, most)
	}
	return tx.endLeases(queue, receipts, func(c *core, m *message) {
		c.count(m.key.queue, countAcked, 1)
		c.observeWork(m, OutcomeAcked)
		c.succeeded(m)
		c.settleCharge(m, o.Used)
		c.endLease(m)
		c.emitMessage(EventAcked, m)
		c.tell(m, &Result{Status: ResultDone, Value: o.Result, At: unix(c.now), key: c.keepResult(m, o.Result)})
		c.remove(m)
	})
}

// keepResult stores the result of a message in the batch that removes the message, unless the
// queue keeps none, and returns its key; nil: it is not stored.
func (c *core) keepResult(m *message, value []byte) []byte {
	q := m.key.queue
	if value == nil || q.set.Values[queueset.ResultTTL] == 0 {
		return nil
	}
	c.count(q, countResults, 1)
	rec := storage.Result{Value: value, At: c.now}
	key := storage.AppendResultKey(nil, q.no, c.generation(q, storage.Results), m.id)
	c.out.batch.Put(storage.Results, key, rec.Append(nil))
	return key
}
