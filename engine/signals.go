package engine

import (
	"cmp"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/signals"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Signals are sums that fade with time, for pairs of a subject and a name. Clients add to them,
// and the engine itself for messages of queues with the setting SIGNALS.
//
// Package signals has the table of the pairs, and says what is written of it and when. Other goroutines read a view of the
// table in the Snapshot.

// The names of the signals that the engine adds to.
const (
	signalEnqueued = "enqueued" // messages stored
	signalAcked    = "acked"    // messages acked
	signalFailed   = "failed"   // leases that ended as failures
	signalWork     = "work_ms"  // how long the leases of both were held
	signalUsed     = "used"     // what acks and nacks have settled
)

// signalSubjectMax bounds the subjects that clients give, in bytes, unless fairness or throttle keys may be longer.
const signalSubjectMax = 512

// signalTable is the component of the signals.
type signalTable struct{ signals.Signals }

// newSignalTable returns the component for a checked configuration.
func newSignalTable(cfg *Config) signalTable {
	s, err := signals.New(cfg.SignalWindows, cfg.Limits.Signals, cfg.SignalCheckpoint, max(signalSubjectMax, cfg.Limits.Key, cfg.Limits.Throttle))
	if err != nil {
		panic("engine: unchecked configuration: " + err.Error())
	}
	return signalTable{s}
}

// reset implements component.
func (t *signalTable) reset() { t.Reset() }

// next implements component.
func (t *signalTable) next(c *core) int64 {
	if c.health.full != nil {
		return never
	}
	return t.NextAt(c.now)
}

// expire writes a part of the checkpoint that is due. A full store gets no checkpoint: its last space is for what frees some.
func (t *signalTable) expire(c *core) {
	for c.health.full == nil && c.room() {
		did, complete := t.Step(c.out.writes(c.now))
		if !did {
			break
		}
		c.spend(1)
		c.out.sync = c.out.sync || complete
	}
}

// check verifies that what is unwritten will be written (27).
func (t *signalTable) check(_ *core, bad report) { t.CheckAll(signals.Report(bad)) }

// publish gives connections and jobs the pairs that have come and gone in this turn.
func (t *signalTable) publish(c *core) {
	if v := t.View(); v != c.out.snapshot.signals {
		next := *c.out.snapshot
		next.signals = v
		c.out.snapshot = &next
	}
}

// unfinishedDrain reports whether the checkpoint of an orderly stop has to continue, so that it loses nothing.
func (t *signalTable) unfinishedDrain(c *core) bool {
	return t.Draining() && c.health.failed == nil && c.health.full == nil
}

// recover reads all pairs.
func (t *signalTable) recover(c *core) error {
	err := c.scan(storage.Signals, nil, t.Read)
	t.Restored()
	t.publish(c)
	return err
}

// recordsSignals reports whether the engine adds to signals for the messages of a queue.
func (q *queue) recordsSignals() bool { return q.set.Values[queueset.Signals] != 0 }

// record adds to a signal of each subject of a message: its fairness key and its throttle
// keys.
func (t *signalTable) record(c *core, m *message, name string, v float64) {
	key := m.key.name
	t.add(c, key, name, v)
	for _, of := range m.throttleKeys() {
		if of != key {
			t.add(c, of, name, v)
		}
	}
}

func (t *signalTable) add(c *core, subject, name string, v float64) {
	if t.Add(subject, name, v, c.out.writes(c.now)) {
		c.spend(1)
	}
}

// SignalAdd is a request to add to a signal.
type SignalAdd = signals.Addition

// AddSignal adds a value to a signal. It is durable when the reply leaves. Errors: ErrMisconf,
// ErrInvalid for what is outside the bounds.
func (tx *Tx) AddSignal(req *SignalAdd) error {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return err
	}
	evicted, err := c.signals.AddNow(req, c.out.writes(c.now))
	if err != nil {
		return err
	}
	c.out.sync = true
	if evicted {
		c.spend(1)
	}
	return nil
}

// SignalInfo is a signal at one moment.
type SignalInfo = signals.Info

// Signals is a request for the signals of a subject.
type Signals struct {
	Subject string
	Name    string // "": all of them

	list []SignalInfo // those of earlier slices
}

// Signals returns signals of a subject in the order of their names. With very many it returns
// ErrWouldBlock and continues in later turns. Errors: ErrInvalid for what cannot be a subject or
// name.
func (tx *Tx) Signals(req *Signals) ([]SignalInfo, error) {
	c := tx.core
	s := &c.signals
	if err := s.Check(req.Subject, cmp.Or(req.Name, signalAcked)); err != nil {
		return nil, err
	}
	if req.Name != "" {
		if i, ok := s.Get(req.Subject, req.Name, c.now); ok {
			return []SignalInfo{i}, nil
		}
		return nil, nil
	}
	after := ""
	if n := len(req.list); n > 0 {
		after = req.list[n-1].Name
	}
	for p := range s.Of(req.Subject, after) {
		if !tx.more() {
			return nil, tx.yield()
		}
		req.list = append(req.list, s.Info(p, c.now))
	}
	return req.list, nil
}

// ListSignals returns a page of the signals whose subjects match, in the order of creation, like
// Throttles. Its only refusal is that of a transaction that has looked at too much.
func (tx *Tx) ListSignals(cursor uint64, count int, match func(subject string) bool) (next uint64, list []SignalInfo, err error) {
	c := tx.core
	if err := tx.afford(1); err != nil {
		return 0, nil, err
	}
	next, list, looked := c.signals.Page(cursor, count, c.now, match)
	c.spend(looked)
	return next, list, nil
}

// DeleteSignals removes a signal, or all signals of a subject if the name is empty, and returns how
// many there were. With very many it returns ErrWouldBlock and continues in later turns. Errors:
// ErrMisconf, ErrInvalid as in Signals.
func (tx *Tx) DeleteSignals(subject, name string) (int, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return 0, err
	}
	if err := c.signals.Check(subject, cmp.Or(name, signalAcked)); err != nil {
		return 0, err
	}
	done, err := tx.progress()
	if err != nil {
		return 0, err
	}
	if tx.atomic && name == "" {
		for range c.signals.Of(subject, "") { // it must not stop in the middle
			if !tx.more() {
				return 0, tx.yield()
			}
		}
	}
	for c.signals.Has(subject, name) {
		if !tx.atomic && !tx.more() {
			return 0, tx.yieldAt(done)
		}
		c.signals.Delete(subject, name, c.out.writes(c.now))
		c.out.sync = true
		done.at++
		done.n++
	}
	return done.n, nil
}

// View returns what hooks see at a time. The sums of signals are those of the moment of each look-up
// and not of the Snapshot, except that pairs are missing that have come since. An addition counts
// from the turn that makes it, before its commit: a hook chooses by signals and promises nothing
// about them, so one that a crash takes back does no harm.
func (s *Snapshot) View(now time.Time) hook.View { return hookView{s, now} }

// hookView implements hook.View.
type hookView struct {
	*Snapshot
	now time.Time
}

// Signal implements hook.View.
func (v hookView) Signal(subject, name, window string) (float64, error) {
	if v.signals == nil {
		return 0, nil
	}
	return v.signals.Value(subject, name, window, v.now.UnixNano())
}

// Budget implements hook.View. What is available is as of the last turns, as signals are.
func (v hookView) Budget(name string) (available int64, ok bool) {
	return v.budgets.Available(name, v.now.UnixNano())
}

// SignalsOf returns how many signals a subject has, counted up to a number.
func (s *Snapshot) SignalsOf(subject string, most int) int {
	if s.signals == nil {
		return 0
	}
	return s.signals.Count(subject, most)
}

// observeWork counts the lease of a message, which ends.
func (c *core) observeWork(m *message, o figures.Outcome) {
	q, held := m.key.queue, time.Duration(max(c.now-m.since, 0))
	q.figures.Held(o, held)
	if q.recordsSignals() {
		c.signals.recordWork(c, m, o, held)
	}
}

// recordWork adds the end of a lease to the signals.
func (t *signalTable) recordWork(c *core, m *message, o figures.Outcome, held time.Duration) {
	switch o {
	case figures.OutcomeAcked:
		t.record(c, m, signalAcked, 1)
	case figures.OutcomeNacked, figures.OutcomeExpired:
		t.record(c, m, signalFailed, 1)
	case figures.OutcomeReleased:
		return
	}
	t.record(c, m, signalWork, float64(held)/float64(time.Millisecond))
}

// recordUsed adds what an ack or a nack settles to the signals: what it says, or the charge that
// budgets have reserved. used is nil where it says nothing.
func (t *signalTable) recordUsed(c *core, m *message, used *int64) {
	if !m.key.queue.recordsSignals() {
		return
	}
	n := int64(0)
	switch {
	case used != nil:
		n = *used
	case m.reserved != 0:
		n = m.throttles.Charge
	}
	if n > 0 {
		t.record(c, m, signalUsed, float64(n))
	}
}
