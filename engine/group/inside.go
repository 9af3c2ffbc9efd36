package group

// Inside lets tests of the engine break the groups, to see whether the records and the invariants find it. Nothing but
// tests may use it: internal/tidy verifies that.
type Inside struct{ t *Table }

// Inside returns what tests may break of a table.
func (t *Table) Inside() Inside { return Inside{t} }

// ForgetOver has the groups that are over never finished, until a restart.
func (p Inside) ForgetOver() { p.t.over = nil }

// ForgetLost has the members of queues that are gone never ended, until a restart.
func (p Inside) ForgetLost() { p.t.lost = nil }

// CountAgain counts the pending members of all groups in a queue once more.
func (p Inside) CountAgain(queue uint32) {
	for l := p.t.byQueue[queue].Head(); l != nil; l = l.Next() {
		l.Pending++
		l.group.Pending++
		p.t.touch(l)
	}
}

// Fold has the pairs of a group that have no members folded when there are that many.
func (p Inside) Fold(most int) { p.t.most = most }

// PauseSweeps has no page of a sweep read before a time.
func (p Inside) PauseSweeps(until int64) { p.t.sweeps.at = until }

// HideSweeps has no queue swept until the function is called that it returns.
func (p Inside) HideSweeps() (show func()) {
	was := p.t.sweeps.byQueue
	p.t.sweeps.byQueue = nil
	return func() { p.t.sweeps.byQueue = was }
}

// ReleaseMessage drops the message of a group from memory.
func (p Inside) ReleaseMessage(name string) { p.t.messages.release(p.t.Get(name).number) }
