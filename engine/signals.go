package engine

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
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
// checkpoint (signals.Checkpoints), so no message has another record. A checkpoint writes in slices, within the
// budget of timers. Its last batch is synced. A crash therefore takes at most what was added by the engine
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
	signalValueMax   = 1e15 // either way
)

// signalTable is the component of the signals.
type signalTable struct {
	windows  *decay.Windows
	max      int   // Limits.Signals
	interval int64 // Config.SignalCheckpoint

	pairs   *signals.Table
	points  signals.Checkpoints
	evicted uint64 // since the start of the broker
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
	t.points = signals.NewCheckpoints(t.pairs, t.interval)
}

// next implements component.
func (t *signalTable) next(c *core) int64 {
	if c.health.full != nil {
		return never
	}
	if t.pairs.Len() > t.max {
		return c.now
	}
	return t.points.Next(c.now)
}

// expire writes a part of the checkpoint that is due. After a start with a lower limit it also
// removes what exceeds it. A full store gets no checkpoint: its last space is for what frees some.
func (t *signalTable) expire(c *core) {
	if c.health.full != nil {
		return
	}
	for t.points.Begin(c.now); t.points.Writing() && c.room(); {
		p, last := t.points.Take()
		if p == nil {
			break
		}
		c.spend(1)
		t.write(c, p)
		if last {
			c.out.sync = true
		}
	}
	t.points.Arm(c.now)
	for c.room() && t.evict(c) {
		c.spend(1)
	}
}

// check verifies that what is unwritten will be written, and the bound (27).
func (t *signalTable) check(_ *core, bad report) {
	n := 0
	t.pairs.Page(0, math.MaxInt, func(p *signals.Pair) {
		if n++; t.pairs.Get(p.Subject(), p.Name()) != p {
			bad(27, "signal %q of %q is not found", p.Name(), p.Subject())
		}
	})
	if n != t.pairs.Len() {
		bad(27, "%d signals are listed, %d found", n, t.pairs.Len())
	}
	if n := t.points.Forgotten(); n > 0 {
		bad(27, "%d signals are not written, and no checkpoint is due", n)
	}
}

// write puts the record of a pair into the open batch.
func (t *signalTable) write(c *core, p *signals.Pair) {
	rec := t.pairs.Record(p)
	c.out.key = append(c.out.key[:0], p.Key()...)
	c.out.batch.Put(storage.Signals, c.out.key, rec.Append(nil))
}

// evict removes the pair touched longest ago if there are more than the limit.
func (t *signalTable) evict(c *core) bool {
	p := t.pairs.Surplus()
	if p == nil {
		return false
	}
	t.evicted++
	t.deleteRecord(c, p)
	return true
}

// deleteRecord deletes the record of a pair that was removed.
func (t *signalTable) deleteRecord(c *core, p *signals.Pair) {
	if p.Stored() {
		c.out.batch.Delete(storage.Signals, []byte(p.Key()))
	}
}

// added follows each addition.
func (t *signalTable) added(c *core) {
	t.points.Arm(c.now)
	if t.evict(c) {
		c.spend(1)
	}
}

// publish gives connections and jobs the pairs that have come and gone in this turn.
func (t *signalTable) publish(c *core) {
	if v := t.pairs.View(); v != c.out.snapshot.signals {
		next := *c.out.snapshot
		next.signals = v
		c.out.snapshot = &next
	}
}

// unfinishedDrain reports whether the checkpoint of an orderly stop has to continue, so that it loses nothing.
func (t *signalTable) unfinishedDrain(c *core) bool {
	return t.points.Draining() && c.health.failed == nil && c.health.full == nil
}

// recover reads all pairs.
func (t *signalTable) recover(c *core) error {
	var all []*signals.Pair
	err := c.scan(storage.Signals, nil, func(k, v []byte) error {
		var rec storage.Signal
		if err := storage.CheckSignal(k, v); err != nil {
			return err
		}
		if err := rec.Decode(v); err != nil {
			return err
		}
		all = append(all, t.pairs.NewPair(string(k), &rec))
		return nil
	})
	t.pairs.Restore(all)
	t.publish(c)
	return err
}

// recordsSignals reports whether the engine adds to signals for the messages of a queue.
func (q *queue) recordsSignals() bool { return q.set.Values[queueset.Signals] != 0 }

// record adds to a signal of each subject of a message: its fairness key and its throttle
// keys.
func (t *signalTable) record(c *core, m *message, name string, v float64) {
	key := m.key.name
	t.pairs.Add(key, name, c.now, v)
	t.added(c)
	for _, of := range m.throttleKeys() {
		if of != key {
			t.pairs.Add(of, name, c.now, v)
			t.added(c)
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
	if err := c.signals.checkName(c, req.Subject, req.Name); err != nil {
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
	c.signals.write(c, p)
	c.out.sync = true
	c.signals.added(c)
	return nil
}

// checkName returns ErrInvalid for a subject or name outside the bounds.
func (t *signalTable) checkName(c *core, subject, name string) error {
	if err := signals.CheckName(subject, name, max(signalSubjectMax, c.cfg.Limits.Key, c.cfg.Limits.Throttle)); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
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
	if err := c.signals.checkName(c, req.Subject, cmp.Or(req.Name, signalAcked)); err != nil {
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
	if err := c.signals.checkName(c, subject, cmp.Or(name, signalAcked)); err != nil {
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
		c.signals.deleteRecord(c, p)
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

// plain formats a number without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
