package engine

import "errors"

// Preflighter is a call that may have to wait in the middle, for something to be
// read or decided. Preflight gets that done before anything is applied: it returns
// ErrWouldBlock for as long as the call would wait, and is then asked again. It
// changes nothing. After nil, Apply does not wait in the same turn. errTransaction
// refuses the whole transaction; other errors are Apply's to return.
type Preflighter interface {
	Preflight(tx *Tx) error
}

// Exec applies calls as one: in one turn, so that their writes are in one batch
// and survive a crash all together or not at all, and nothing happens between
// them. Each has its own error, in errs; a call that is refused changes nothing
// and does not stop the others.
//
// Nothing in it waits for messages: a lease that would block comes back empty.
// What has to be read first is read before the first call is applied.
func (tx *Tx) Exec(calls []Call, errs []error) error {
	tx.atomic = true
	tx.task.shown = 0
	for _, call := range calls {
		if f, ok := call.(Preflighter); ok && tx.core.health.failed == nil {
			if err := f.Preflight(tx); err == ErrWouldBlock || errors.Is(err, errTransaction) { //nolint:errorlint // a signal, never wrapped
				return err
			}
		}
	}
	for i, call := range calls {
		err := call.Apply(tx)
		if err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
			err = errWaits
		}
		errs[i] = err
	}
	return nil
}

// before is what the calls of a transaction do that come before the one which is
// foreseen, as far as it matters to that.
type preflight struct {
	leases map[string]bool // queues that are leased from
	nacks  map[ID]uint32   // failures of a message
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

// errTransaction is wrapped by what refuses a transaction as a whole.
var errTransaction = errors.New("make it several transactions")

// errWaits refuses what cannot be had at once where nothing may wait.
var errWaits = errors.New("this cannot be done as a part of a transaction, do it on its own")
