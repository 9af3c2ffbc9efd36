package budget

// Inside lets tests of the engine break an account, to see whether the records and the invariants find it. Nothing
// but tests may use it: internal/tidy verifies that.
type Inside struct{ a *Account }

// Inside returns what tests may break of an account.
func (a *Account) Inside() Inside { return Inside{a} }

// ForgetBatch forgets in which batch the account has got more available.
func (p Inside) ForgetBatch() { p.a.freedIn = 0 }

// RepeatTicks computes the next tick of the refill from a time, so that ticks may count twice.
func (p Inside) RepeatTicks(calendar int64) {
	if ticks := p.a.calendar.Load().Schedule(); ticks != nil {
		p.a.sums.NextAt = ticks.First(calendar)
	}
}
