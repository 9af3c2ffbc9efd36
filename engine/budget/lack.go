package budget

import (
	"fmt"
	"time"
)

// Lack is a budget that does not cover the next message of a key.
type Lack struct {
	Budget            string
	Charge, Available int64     // of the message, of the budget; 0 if there is none of that name
	ReadyAt           time.Time // when refills cover the message, if the next one of each budget suffices; else zero

	missing bool  // there is no budget of that name
	most    int64 // the balance above which refills do not bring it, if that is too low; else 0
}

// NewLack describes what a charge lacks that the budget of a name does not cover. a is its account; nil: there is none.
func NewLack(name string, a *Account, charge int64) *Lack {
	l := &Lack{Budget: name, Charge: charge, missing: a == nil}
	if a == nil {
		return l
	}
	s := a.sums // a copy, which is refilled
	l.Available = s.Available()
	if s.Fill() > 0 && s.Covers(charge) {
		l.ReadyAt = time.Unix(0, s.NextAt)
	}
	if most := s.Refill.Max; most > 0 && most+s.Debt < charge {
		l.most = most
	}
	return l
}

// And adds that another budget of the message lacks something as well: it is delivered when all cover it.
func (l *Lack) And(other *Lack) {
	if other.ReadyAt.IsZero() || !l.ReadyAt.IsZero() && other.ReadyAt.After(l.ReadyAt) {
		l.ReadyAt = other.ReadyAt
	}
}

// Reason says in half a sentence what the budget lacks.
func (l *Lack) Reason() string {
	switch {
	case l.missing:
		return fmt.Sprintf("budget %.80q does not exist, FILA.BUDGET SET makes it", l.Budget)
	case l.most > 0:
		return fmt.Sprintf("budget %.80q has %d credits available, the next message takes %d, and refills never bring more than %d (MAX)", l.Budget, l.Available, l.Charge, l.most)
	default:
		return fmt.Sprintf("budget %.80q has %d credits available, the next message takes %d", l.Budget, l.Available, l.Charge)
	}
}
