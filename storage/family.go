package storage

import "strconv"

// Family is a column family. Its number is RocksDB's column family id and part of every
// batch, so the order of the constants is part of the format: append new ones, never
// remove one.
type Family uint8

// The families, in the order of their ids. What each holds is in the package comment.
const (
	Default Family = iota
	Messages
	Leases
	Attempts
	Scheduled
	Queues
	State
	Dedup
	Expiries
	Budgets
	Ledger
	Signals
	Results
	Bodies
	FamilyCount // how many there are
)

// Families returns every family, in the order of their ids.
func Families() []Family {
	fs := make([]Family, FamilyCount)
	for i := range fs {
		fs[i] = Family(i)
	}
	return fs
}

// String returns the name under which the family is stored.
func (f Family) String() string {
	switch f {
	case Default:
		return "default"
	case Messages:
		return "messages"
	case Leases:
		return "leases"
	case Attempts:
		return "attempts"
	case Scheduled:
		return "scheduled"
	case Queues:
		return "queues"
	case State:
		return "state"
	case Dedup:
		return "dedup"
	case Expiries:
		return "expiries"
	case Budgets:
		return "budgets"
	case Ledger:
		return "ledger"
	case Signals:
		return "signals"
	case Results:
		return "results"
	case Bodies:
		return "bodies"
	case FamilyCount:
	}
	return "family " + strconv.Itoa(int(f))
}
