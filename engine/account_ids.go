package engine

import (
	"fmt"

	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/storage"
)

// Ids of movements. The ids of movements of budgets are in the ledger, and are looked up in the same
// three steps as deduplication ids (dedup.go).

// movementView is the result of looking an id up.
type movementView struct {
	seen  uint64 // all batches up to this one were in the store
	found []storage.LedgerEntry
	err   error
	done  bool
}

// PrepareMove looks the id of a movement up. It runs on the goroutine of the connection.
// Errors: ErrTooBig for a long id or note.
func (e *Engine) PrepareMove(req *BudgetMove) error {
	seen := e.durable.Load() // before the snapshot: the look-up then claims no more than it has seen
	return prepareMove(req, e.store, e.Snapshot(), seen)
}

func prepareMove(req *BudgetMove, store Store, s *Snapshot, seen uint64) error {
	switch {
	case len(req.ID) > MoveIDMax:
		return fmt.Errorf("%w: ID of %d bytes, the limit is %d", ErrTooBig, len(req.ID), MoveIDMax)
	case len(req.Note) > MoveNoteMax:
		return fmt.Errorf("%w: NOTE of %d bytes, the limit is %d", ErrTooBig, len(req.Note), MoveNoteMax)
	case req.ID != "":
		req.look(store, s.ledgerDays, seen)
	}
	return nil
}

// look looks the id up in the store, which has all batches up to seen. It is safe on any
// goroutine.
func (r *BudgetMove) look(store Store, days ledger.Days, seen uint64) {
	r.known = movementView{seen: seen, done: true}
	r.known.found, r.known.err = ledger.Under(store, days, r.Name, r.ID)
}

// movedUnder returns what was done with an account under the id of a request. ErrWouldBlock
// means that the look-up has to be repeated.
func (c *core) movedUnder(a *account, req *BudgetMove) (was movement, found bool, err error) {
	if was, found = c.accounts.recent.Get(movementKey{a.made, req.ID}); found {
		return was, true, nil
	}
	v := &req.known
	switch {
	case !v.done || v.seen < c.accounts.recent.Dropped:
		return was, false, ErrWouldBlock
	case v.err != nil:
		return was, false, fmt.Errorf("look ID up: %w", v.err)
	}
	for i := range v.found {
		if e := &v.found[i]; e.Made == a.made {
			return movement{ledger.Kind(e.Kind), e.Amount, e.Balance}, true, nil
		}
	}
	return was, false, nil
}

// PreflightMove waits, in a transaction, for a current look-up of the id.
func (tx *Tx) PreflightMove(req *BudgetMove) error {
	if v := &req.known; req.ID != "" && (!v.done || v.seen < tx.core.accounts.recent.Dropped) {
		return tx.lookAgain(req)
	}
	return nil
}

// lookAgain parks the task for a look-up that sees all batches up to the open one, and returns
// ErrWouldBlock.
func (tx *Tx) lookAgain(req *BudgetMove) error {
	c := tx.core
	c.out.jobs = append(c.out.jobs, &movementLook{task: tx.task, req: req, copy: BudgetMove{Name: req.Name, ID: req.ID}, days: c.accounts.days, batch: c.out.batchNo})
	return tx.await()
}

// movementLook is the off-loop job of a repeated look-up.
type movementLook struct {
	task  *Task
	req   *BudgetMove
	copy  BudgetMove // the job's own: the task may be concluded meanwhile
	days  ledger.Days
	batch uint64 // committed when the look-up begins
}

func (l *movementLook) do(store Store) { l.copy.look(store, l.days, l.batch) }

// Apply resumes the task with the result.
func (l *movementLook) Apply(tx *Tx) error {
	if l.task.wait != nil {
		l.req.known = l.copy.known
		l.task.resume(tx.core)
	}
	return nil
}
