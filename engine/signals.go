package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/decay"
	"github.com/faisca/fila/engine/internal/signals"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Signals are sums that fade with time, for pairs of a subject and a name. Clients add to them,
// and the engine itself for messages of queues with the setting SIGNALS.
//
// What a client adds is in the batch of its reply. What the engine adds is written later, by a
// checkpoint, so no message has another record:
//
//	written ──addition──▶ waiting: writeAt is set ──due──▶ writing: left > 0 ──▶ written
//	                        ▲                                  │
//	                        └──added to meanwhile──────────────┘
//
// A checkpoint writes in slices, within the budget of timers, the pairs that had changed when it
// began. Its last batch is synced. A crash therefore takes at most what was added by the engine
// since the last checkpoint, and nothing that a client has added.
//
// Limits.Signals bounds the pairs: one more takes the place of the one touched longest ago.
// Other goroutines read a view of the table in the Snapshot.

// The names of the signals that the engine adds to.
const (
	signalEnqueued = "enqueued" // messages stored
	signalAcked    = "acked"    // messages acked
	signalFailed   = "failed"   // leases that ended as failures
	signalWork     = "work_ms"  // how long the leases of both were held
	signalUsed     = "used"     // what acks and nacks have settled
)

// Bounds of what clients give.
const (
	signalSubjectMax = 512  // bytes; a longer fairness or throttle key is a subject nevertheless
	signalNameMax    = 64   // bytes
	signalValueMax   = 1e15 // either way
)

// signalTable is the component of the signals.
type signalTable struct {
	windows  *decay.Windows
	max      int   // Limits.Signals
	interval int64 // Config.SignalCheckpoint

	pairs    *signals.Table
	writeAt  int64  // when the next checkpoint begins; never: nothing is to be written, or one is under way
	left     int    // pairs that the checkpoint under way has still to write
	draining bool   // the engine is stopping: writing all is unfinished work
	evicted  uint64 // since the start of the broker
}

// newSignalTable returns the component for a checked configuration.
func newSignalTable(cfg *Config) signalTable {
	windows, err := decay.NewWindows(cfg.SignalWindows)
	if err != nil {
		panic("engine: unchecked configuration: " + err.Error())
	}
	return signalTable{windows: windows, max: cfg.Limits.Signals, interval: int64(cfg.SignalCheckpoint)}
}

// reset implements component. The count of evictions is no part of the store.
func (t *signalTable) reset() {
	t.pairs = signals.New(t.windows, t.max)
	t.writeAt, t.left, t.draining = never, 0, false
}

// next implements component.
func (t *signalTable) next(c *core) int64 {
	if c.health.full != nil {
		return never
	}
	if t.left > 0 || t.pairs.Len() > t.max {
		return c.now
	}
	return t.writeAt
}

// expire writes a part of the checkpoint that is due. After a start with a lower limit it also
// removes what exceeds it. A full store gets no checkpoint: its last space is for what frees some.
func (t *signalTable) expire(c *core) {
	if c.health.full != nil {
		return
	}
	if t.writeAt <= c.now {
		t.left, t.writeAt = t.pairs.Unwritten(), never
	}
	for t.left > 0 && c.room() {
		p := t.pairs.NextUnwritten()
		if p == nil { // removed since the checkpoint began
			t.left = 0
			break
		}
		c.spend(1)
		c.writeSignal(p)
		if t.left--; t.left == 0 {
			c.out.sync = true
		}
	}
	t.arm(c)
	for c.room() && c.evictSignal() {
		c.spend(1)
	}
}

// arm sets the time of the next checkpoint if there is something to write. A stop does not wait
// for it, also not for additions that are made while the engine stops.
func (t *signalTable) arm(c *core) {
	switch {
	case t.left > 0 || t.pairs.Unwritten() == 0:
	case t.draining:
		t.writeAt = min(t.writeAt, c.now)
	case t.writeAt == never:
		t.writeAt = c.now + t.interval
	}
}

// check verifies that what is unwritten will be written, and the bound (27).
func (t *signalTable) check(_ *core, bad report) {
	n, unwritten := 0, t.pairs.Unwritten()
	t.pairs.Page(0, math.MaxInt, func(p *signals.Pair) {
		if n++; t.pairs.Get(p.Subject(), p.Name()) != p {
			bad(27, "signal %q of %q is not found", p.Name(), p.Subject())
		}
	})
	if n != t.pairs.Len() {
		bad(27, "%d signals are listed, %d found", n, t.pairs.Len())
	}
	if unwritten > 0 && t.left == 0 && t.writeAt == never {
		bad(27, "%d signals are not written, and no checkpoint is due", unwritten)
	}
}

// writeSignal puts the record of a pair into the open batch.
func (c *core) writeSignal(p *signals.Pair) {
	rec := c.signals.pairs.Record(p)
	c.out.key = append(c.out.key[:0], p.Key()...)
	c.out.batch.Put(storage.Signals, c.out.key, rec.Append(nil))
}

// evictSignal removes the pair touched longest ago if there are more than the limit.
func (c *core) evictSignal() bool {
	p := c.signals.pairs.Surplus()
	if p == nil {
		return false
	}
	c.signals.evicted++
	c.deleteSignal(p)
	return true
}

// deleteSignal deletes the record of a pair that was removed.
func (c *core) deleteSignal(p *signals.Pair) {
	if p.Stored() {
		c.out.batch.Delete(storage.Signals, []byte(p.Key()))
	}
}

// addedSignal follows each addition.
func (c *core) addedSignal() {
	c.signals.arm(c)
	if c.evictSignal() {
		c.spend(1)
	}
}

// publishSignals gives connections and jobs the pairs that have come and gone in this turn.
func (c *core) publishSignals() {
	if v := c.signals.pairs.View(); v != c.out.snapshot.signals {
		next := *c.out.snapshot
		next.signals = v
		c.out.snapshot = &next
	}
}

// drainSignals makes a checkpoint due, so that an orderly stop loses nothing.
func (c *core) drainSignals() {
	c.signals.draining = true
	c.signals.arm(c)
}

// unfinishedDrain reports whether that checkpoint has to continue.
func (c *core) unfinishedDrain() bool {
	return c.signals.draining && c.signals.pairs.Unwritten() > 0 && c.health.failed == nil && c.health.full == nil
}

// recoverSignals reads all pairs.
func (c *core) recoverSignals() error {
	var all []*signals.Pair
	err := c.scan(storage.Signals, nil, func(k, v []byte) error {
		var rec storage.Signal
		if err := CheckSignal(k, v); err != nil {
			return err
		}
		if err := rec.Decode(v); err != nil {
			return err
		}
		all = append(all, c.signals.pairs.NewPair(string(k), &rec))
		return nil
	})
	c.signals.pairs.Restore(all)
	c.publishSignals()
	return err
}

// CheckSignal verifies a record: its numbers are finite.
func CheckSignal(key, value []byte) error {
	subject, name, err := storage.ParseSignalKey(key)
	if err != nil {
		return err
	}
	var rec storage.Signal
	if err := rec.Decode(value); err != nil {
		return fmt.Errorf("signal %.80q of %.80q: %w", name, subject, err)
	}
	sums := []float64{rec.All}
	for _, w := range rec.Windows {
		sums = append(sums, w.Sum)
	}
	if rec.At < 0 || slices.ContainsFunc(sums, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }) {
		return fmt.Errorf("signal %.80q of %.80q has impossible sums: %w", name, subject, storage.ErrCorrupt)
	}
	return nil
}

// recordsSignals reports whether the engine adds to signals for the messages of a queue.
func (q *queue) recordsSignals() bool { return q.set.Values[queueset.Signals] != 0 }

// recordSignal adds to a signal of each subject of a message: its fairness key and its throttle
// keys.
func (c *core) recordSignal(m *message, name string, v float64) {
	key := m.key.name
	c.signals.pairs.Add(key, name, c.now, v)
	c.addedSignal()
	for _, t := range m.throttleKeys() {
		if t != key {
			c.signals.pairs.Add(t, name, c.now, v)
			c.addedSignal()
		}
	}
}

// SignalAdd is a request to add to a signal.
type SignalAdd struct {
	Subject string // 1 to 512 bytes
	Name    string // 1 to 64 of a-z 0-9 _ - .
	Value   float64
	AtMs    *int64 // Unix milliseconds, not later than now; nil: now
}

// AddSignal adds a value to a signal. It is durable when the reply leaves. Errors: ErrMisconf,
// ErrInvalid for what is outside the bounds.
func (tx *Tx) AddSignal(req *SignalAdd) error {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return err
	}
	if err := c.checkSignalName(req.Subject, req.Name); err != nil {
		return err
	}
	if !(math.Abs(req.Value) <= signalValueMax) { // NaN is not
		return fmt.Errorf("%w: the value of a signal is a number up to %s either way", ErrInvalid, plain(signalValueMax))
	}
	pairs := c.signals.pairs
	var p *signals.Pair
	switch at := req.AtMs; {
	case at == nil:
		p = pairs.Add(req.Subject, req.Name, c.now, req.Value)
	case *at < 0 || *at > time.Unix(0, c.now).UnixMilli():
		return fmt.Errorf("%w: AT is a time in the past, in Unix milliseconds; the broker's is %d now", ErrInvalid, time.Unix(0, c.now).UnixMilli())
	default:
		p = pairs.AddAt(req.Subject, req.Name, *at*int64(time.Millisecond), req.Value)
	}
	c.writeSignal(p)
	c.out.sync = true
	c.addedSignal()
	return nil
}

// checkSignalName returns ErrInvalid for a subject or name outside the bounds.
func (c *core) checkSignalName(subject, name string) error {
	if most := max(signalSubjectMax, c.cfg.Limits.Key, c.cfg.Limits.Throttle); subject == "" || len(subject) > most {
		return fmt.Errorf("%w: the subject of a signal has from 1 to %d bytes, this one has %d", ErrInvalid, most, len(subject))
	}
	for _, b := range []byte(name) {
		letter, digit := b >= 'a' && b <= 'z', b >= '0' && b <= '9'
		if !letter && !digit && b != '_' && b != '-' && b != '.' {
			return fmt.Errorf("%w: the name of a signal consists of a-z 0-9 _ - . only, this is %.80q", ErrInvalid, name)
		}
	}
	if name == "" || len(name) > signalNameMax {
		return fmt.Errorf("%w: the name of a signal has from 1 to %d bytes, this one has %d", ErrInvalid, signalNameMax, len(name))
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
	if err := c.checkSignalName(req.Subject, cmp.Or(req.Name, signalAcked)); err != nil {
		return nil, err
	}
	if req.Name != "" {
		if p := c.signals.pairs.Get(req.Subject, req.Name); p != nil {
			return []SignalInfo{c.signals.pairs.Info(p, c.now)}, nil
		}
		return nil, nil
	}
	after := ""
	if n := len(req.list); n > 0 {
		after = req.list[n-1].Name
	}
	for p := range c.signals.pairs.Of(req.Subject, after) {
		if !tx.more() {
			return nil, tx.yield()
		}
		req.list = append(req.list, c.signals.pairs.Info(p, c.now))
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
	next = c.signals.pairs.Page(cursor, count, func(p *signals.Pair) {
		c.spend(1)
		if match(p.Subject()) {
			list = append(list, c.signals.pairs.Info(p, c.now))
		}
	})
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
	if err := c.checkSignalName(subject, cmp.Or(name, signalAcked)); err != nil {
		return 0, err
	}
	done, err := tx.progress()
	if err != nil {
		return 0, err
	}
	if tx.atomic && name == "" {
		for range c.signals.pairs.Of(subject, "") { // it must not stop in the middle
			if !tx.more() {
				return 0, tx.yield()
			}
		}
	}
	for {
		p := c.signals.pairs.First(subject, name)
		if p == nil {
			break
		}
		if !tx.atomic && !tx.more() {
			return 0, tx.yieldAt(done)
		}
		c.signals.pairs.Remove(p)
		c.deleteSignal(p)
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
		c.recordWork(m, o, held)
	}
}

// recordWork adds the end of a lease to the signals.
func (c *core) recordWork(m *message, o figures.Outcome, held time.Duration) {
	switch o {
	case figures.OutcomeAcked:
		c.recordSignal(m, signalAcked, 1)
	case figures.OutcomeNacked, figures.OutcomeExpired:
		c.recordSignal(m, signalFailed, 1)
	case figures.OutcomeReleased:
		return
	}
	c.recordSignal(m, signalWork, float64(held)/float64(time.Millisecond))
}

// recordUsed adds what an ack or a nack settles to the signals: what it says, or the charge that
// budgets have reserved. used is nil where it says nothing.
func (c *core) recordUsed(m *message, used *int64) {
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
		c.recordSignal(m, signalUsed, float64(n))
	}
}
