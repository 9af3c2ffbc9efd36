package engine

import (
	"errors"
	"fmt"

	"github.com/faisca/fila/storage"
)

// Preflighter is a call that may need a read or a hook's decision before it can be applied.
// In a transaction, Preflight obtains these before any call is applied: it returns
// ErrWouldBlock while the call would have to wait, and is called again when the wait is
// over. It changes nothing. After nil, Apply does not wait in the same turn. errTransaction
// refuses the whole transaction; any other error is ignored, since Apply returns it.
type Preflighter interface {
	Preflight(tx *Tx) error
}

// Exec applies calls as a transaction: in one turn, with no other task between them and all
// writes in one batch, which survives a crash entirely or not at all. errs[i] is the error
// of calls[i]; a refused call changes nothing and does not stop the others. The error that
// Exec returns refuses the transaction as a whole, or is ErrWouldBlock.
//
// No call waits for messages: a lease that would block returns none. Reads and decisions
// are obtained by preflight, before the first call is applied.
func (tx *Tx) Exec(calls []Call, errs []error) error {
	tx.atomic, tx.work = true, tx.core.tasks.budget.Allow(len(calls))
	tx.task.shown = 0
	for _, call := range calls {
		if f, ok := call.(Preflighter); ok && tx.core.health.failed == nil {
			if err := f.Preflight(tx); err == ErrWouldBlock || errors.Is(err, errTransaction) { //nolint:errorlint // a signal, never wrapped
				return err
			}
		}
	}
	for i, call := range calls {
		tx.work.Begin(&tx.core.tasks.budget)
		err := call.Apply(tx)
		tx.core.groups.endOver(tx.core)
		tx.work.End(&tx.core.tasks.budget)
		if err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
			err = errWaits
		}
		errs[i] = err
	}
	return nil
}

// preflight is the effect of the earlier calls of a transaction on the call whose preflight
// is under way: a nack may refer to a message that an earlier call of the transaction leases.
type preflight struct {
	leases map[string]bool // queues that earlier calls lease from
	nacks  map[ID]uint32   // number of earlier nacks by message
}

func (b *preflight) lease(queues []string) {
	if b.leases == nil {
		b.leases = map[string]bool{}
	}
	for _, name := range queues {
		b.leases[name] = true
	}
}

func (b *preflight) nack(id ID) {
	if b.nacks == nil {
		b.nacks = map[ID]uint32{}
	}
	b.nacks[id]++
}

// errTransactionWork refuses a call whose transaction has used up its work.
var errTransactionWork = fmt.Errorf("%w: the commands of this transaction look at too many keys, queues or leases in one piece, do this one on its own", ErrTooBig)

// errTransaction is wrapped by errors that refuse a transaction as a whole.
var errTransaction = errors.New("make it several transactions")

// errWaits refuses a call of a transaction that would have to wait.
var errWaits = errors.New("this cannot be done as a part of a transaction, do it on its own")

// deliveries are what calls of a transaction have leased. The reply is written after the commit, when
// the store has no longer what a later call of the transaction has removed. So keep reads such a
// message before it is removed.
type deliveries struct {
	byID map[ID][]delivered // a message that was released in between is delivered twice
	ids  []ID               // in the order of the first deliveries
}

type delivered struct {
	*Delivery

	m *message // has the body as long as the store does not
}

// noteDelivered notes what a call of a transaction has leased.
func (tx *Tx) noteDelivered(ds []*Delivery) {
	if !tx.atomic {
		return
	}
	s := &tx.delivered
	if s.byID == nil {
		s.byID = map[ID][]delivered{}
	}
	for _, d := range ds {
		id := d.Receipt.ID
		if s.byID[id] == nil {
			s.ids = append(s.ids, id)
		}
		s.byID[id] = append(s.byID[id], delivered{d, tx.core.leases.byID[id]})
	}
}

// keep brings what the transaction has delivered of messages into memory, before they are removed
// from their queue. It reads in the turn, like loadBody.
//
// Errors: ErrTooBig for more than Config.ReplyBytes in one transaction; those of the store.
func (tx *Tx) keep(queue string, ids ...ID) error {
	for _, id := range ids {
		for _, d := range tx.delivered.byID[id] {
			if d.Queue != queue {
				continue
			}
			if err := tx.load(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepHeld is keep for the messages of receipts.
func (tx *Tx) keepHeld(queue string, receipts []Receipt) error {
	if len(tx.delivered.ids) == 0 {
		return nil
	}
	for i := range receipts {
		if err := tx.keep(queue, receipts[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// keepAll is keep for all messages of a queue.
func (tx *Tx) keepAll(queue string) error {
	if err := tx.afford(len(tx.delivered.ids) / deliveriesPerUnit); err != nil {
		return err
	}
	return tx.keep(queue, tx.delivered.ids...)
}

// deliveriesPerUnit is the number of deliveries that a unit of work pays for when they are only
// inspected.
const deliveriesPerUnit = 16

// readUnits is the work of reading a record in the turn.
const readUnits = 16

// load is keep for one delivery.
func (tx *Tx) load(d delivered) error {
	if !d.HasRecord() {
		b := d.m.body
		if b == nil {
			var err error
			if b, err = storage.GetMessage(tx.core.store, d.Place.Append(nil)); err != nil {
				return fmt.Errorf("read message %s: %w", d.Place.ID, err)
			}
		}
		if tx.task.shown += len(b); tx.task.shown > tx.core.cfg.ReplyBytes {
			return fmt.Errorf("%w: the messages that the transaction leases and removes have more than %d bytes, make it several", ErrTooBig, tx.core.cfg.ReplyBytes)
		}
		if err := tx.afford(readUnits + len(b)/unitBytes); err != nil {
			return err
		}
		d.SetRecord(b)
	}
	d.Kept = true
	return nil
}
