package engine

import (
	"errors"
	"strings"
)

// Budgets in the simulation that no producer names: the hook of "b" decides by a header, and the
// recurring messages of a rule have one. Two budgets exist at times only. The oracle knows what the
// hook decides, and that nothing is handed out whose budget does not exist.

// tellHook adds that header, now and then, and returns what pays for the message after the hook.
func (s *sim) tellHook(req *Enqueue, p simCharge) simCharge {
	n := s.rng.IntN(8)
	if n > 2 || s.poor() {
		return p
	}
	value := []string{"gate", "none", "both"}[n]
	if s.mutant != hookFree {
		req.Headers = append(req.Headers, Header{Name: []byte(simPays), Value: []byte(value)})
	}
	switch {
	case req.Queue != "b":
	case value == "gate":
		p.gated = req.Charge == nil || *req.Charge > 0 // where it reserves nothing, DEL may come between two parts of a lease
	case value == "none":
		p = simCharge{}
	default:
		p = simCharge{charge: 3, budgets: [simBudgets]bool{true, true}}
	}
	return p
}

// actGate makes or removes one of the budgets that exist at times only.
func (s *sim) actGate(cl *simClient) {
	name := []string{simGate, simTicks}[s.rng.IntN(2)]
	refuses, n := name == simGate && s.rng.IntN(4) == 0, 1+s.rng.Int64N(200)
	if s.rng.IntN(2) == 0 {
		s.submit(cl, func(tx *Tx) error { _, err := tx.DeleteBudget(name); return err }, func(err error) {
			if err != nil && !refusal(err) && !errors.Is(err, ErrInvalid) { // leases have reserved some of it
				s.oracle.fail("delete budget: %v", err)
			}
		})
		return
	}
	s.submit(cl, func(tx *Tx) error { return openGate(tx, name, refuses, n) }, s.noRefusal("set budget"))
}

func openGate(tx *Tx, name string, refuses bool, n int64) error {
	if err := tx.SetBudget(name, &BudgetOptions{Refuse: refuses}); err != nil {
		return err
	}
	_, err := tx.MoveBudget(&BudgetMove{Name: name, Amount: n})
	return err
}

// openGates makes both budgets, with credits for all that waits.
func (s *sim) openGates(cl *simClient) {
	for _, name := range []string{simGate, simTicks} {
		s.submit(cl, func(tx *Tx) error { return openGate(tx, name, false, 1_000_000) }, func(err error) {
			if err != nil {
				s.oracle.fail("set budget: %v", err)
			}
		})
	}
}

// gatesOpen checks a lease in its turn: the budgets of what is handed out exist.
func (s *sim) gatesOpen(tx *Tx, ds []*Delivery) {
	for _, d := range ds {
		name := ""
		switch {
		case d.Queue == simCronQueue && d.Key == CatchUpAll.String():
			name = simTicks
		case s.money.paid[d.Receipt.ID].gated && !strings.HasSuffix(d.Queue, ".dlq"):
			name = simGate
		}
		if _, ok := tx.Budget(name); !ok && name != "" {
			s.oracle.fail("%s of %s is handed out, and there is no budget %s", d.Receipt.ID, d.Queue, name)
		}
	}
}

// notNow reports whether an enqueue was refused for a reason that passes.
func notNow(err error) bool {
	return refusal(err) || errors.Is(err, ErrPaused) || errors.Is(err, ErrCredit) || errors.Is(err, ErrMaxDepth)
}
