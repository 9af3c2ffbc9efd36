package signals

// Inside lets tests of the engine look at signals, and break them. Nothing but tests may use it: internal/tidy verifies
// that.
type Inside struct{ s *Signals }

// Inside returns what tests may look at and break.
func (s *Signals) Inside() Inside { return Inside{s} }

// Delay has a checkpoint after the next start so many times later.
func (p Inside) Delay(times int64) { p.s.every *= times }

// Unwritten is how many pairs have additions that no record has.
func (p Inside) Unwritten() int { return p.s.pairs.Unwritten() }
