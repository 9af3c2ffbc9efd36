package engine

import (
	"fmt"

	"github.com/faisca/fila/engine/budget"
)

// Ids of movements. The ids of movements of budgets are in the ledger, and are looked up in the same
// three steps as deduplication ids (dedup.go).

// Bounds of the texts of a movement, in bytes.
const (
	MoveIDMax   = 512
	MoveNoteMax = 512
)

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
		req.Known = s.budgets.Look(store, req.Name, req.ID, seen)
	}
	return nil
}

// PreflightMove waits, in a transaction, for a current look-up of the id.
func (tx *Tx) PreflightMove(req *BudgetMove) error {
	if req.ID != "" && tx.core.accounts.Stale(&req.Known) {
		return tx.lookAgain(req)
	}
	return nil
}

// lookAgain parks the task for a look-up that sees all batches up to the open one, and returns
// ErrWouldBlock.
func (tx *Tx) lookAgain(req *BudgetMove) error {
	c := tx.core
	c.out.jobs = append(c.out.jobs, &movementLook{task: tx.task, req: req, name: req.Name, id: req.ID, view: c.accounts.View(), batch: c.out.batchNo})
	return tx.await()
}

// movementLook is the off-loop job of a repeated look-up.
type movementLook struct {
	task     *Task
	req      *BudgetMove
	name, id string // of the request: the task may be concluded meanwhile
	view     budget.View
	batch    uint64 // committed when the look-up begins

	known budget.Known
}

func (l *movementLook) do(store Store) { l.known = l.view.Look(store, l.name, l.id, l.batch) }

// Apply resumes the task with the result.
func (l *movementLook) Apply(tx *Tx) error {
	if l.task.wait != nil {
		l.req.Known = l.known
		l.task.resume(tx.core)
	}
	return nil
}
