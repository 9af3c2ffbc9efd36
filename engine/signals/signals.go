package signals

import (
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/faisca/fila/engine/internal/decay"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/engine/internal/writes"
	"github.com/faisca/fila/storage"
)

// valueMax bounds what a client adds, either way.
const valueMax = 1e15

// Signals is a table of pairs with what is written of it, and when. What a client adds is in the batch of its reply. What
// the engine adds is written later, by a checkpoint, so no message has another record. A crash therefore takes at most
// what was added by the engine since the last checkpoint, and nothing that a client has added.
type Signals struct {
	windows *decay.Windows
	most    int
	every   int64
	names   int // bytes of the longest subject of a request

	pairs   *Table
	points  checkpoints
	evicted uint64
	read    []*Pair // by Read, for Restored
}

// New returns signals with windows of these lengths, for at most so many pairs, with a checkpoint at most every so often.
// The subject of a request has at most subject bytes. Reset follows. The error is that of decay.NewWindows.
func New(windows []time.Duration, most int, every time.Duration, subject int) (Signals, error) {
	w, err := decay.NewWindows(windows)
	return Signals{windows: w, most: most, every: int64(every), names: subject}, err
}

// Reset forgets all pairs. Read and Restored follow. The count of evictions is no part of the store.
func (s *Signals) Reset() {
	s.pairs = NewTable(s.windows, s.most)
	s.points = newCheckpoints(s.pairs, s.every)
}

// Read reads the record of a pair.
func (s *Signals) Read(key, value []byte) error {
	var rec storage.Signal
	if err := storage.CheckSignal(key, value); err != nil {
		return err
	}
	if err := rec.Decode(value); err != nil {
		return err
	}
	s.read = append(s.read, s.pairs.NewPair(string(key), &rec))
	return nil
}

// Restored follows the last Read.
func (s *Signals) Restored() {
	s.pairs.Restore(s.read)
	s.read = nil
}

// Len returns the number of pairs.
func (s *Signals) Len() int { return s.pairs.Len() }

// Evicted returns how many pairs have made room for others since the start of the broker.
func (s *Signals) Evicted() uint64 { return s.evicted }

// View returns the pairs of this moment, for other goroutines.
func (s *Signals) View() *View { return s.pairs.View() }

// NextAt returns when Step has something to do; Never: not before an addition.
func (s *Signals) NextAt(now int64) int64 {
	if s.pairs.Len() > s.most {
		return now
	}
	return s.points.Next(now)
}

// Step writes one record of the checkpoint that is due, or removes a pair if there are more than the limit, as after a start
// with a lower one. It returns whether it has done anything, and whether a checkpoint is complete: its last batch is synced.
func (s *Signals) Step(w writes.Batch) (did, complete bool) {
	defer s.points.Arm(w.Now) // for what was added since the checkpoint began
	if s.points.Begin(w.Now); s.points.Writing() {
		if p, last := s.points.Take(); p != nil {
			s.write(p, w)
			return true, last
		}
	}
	return s.evict(w), false
}

// Drain has all be written at once, also what is added later.
func (s *Signals) Drain(now int64) { s.points.Drain(now) }

// Draining reports whether something has to be written after Drain.
func (s *Signals) Draining() bool { return s.points.Draining() }

// write writes the record of a pair.
func (s *Signals) write(p *Pair, w writes.Batch) {
	rec := s.pairs.Record(p)
	w.Put(storage.Signals, s.pairs.keyOf(p), rec.Append(nil))
}

// evict removes the pair touched longest ago if there are more than the limit.
func (s *Signals) evict(w writes.Batch) bool {
	p := s.pairs.Surplus()
	if p == nil {
		return false
	}
	s.evicted++
	s.deleteRecord(p, w)
	return true
}

// deleteRecord deletes the record of a pair that was removed.
func (s *Signals) deleteRecord(p *Pair, w writes.Batch) {
	if p.Stored() {
		w.Delete(storage.Signals, s.pairs.keyOf(p))
	}
}

// Add adds a value to a pair at the time of the turn, and reports whether another one has made room for it. It is written
// by a checkpoint.
func (s *Signals) Add(subject, name string, v float64, w writes.Batch) (evicted bool) {
	s.pairs.Add(subject, name, w.Now, v)
	s.points.Arm(w.Now)
	return s.evict(w)
}

// Addition is a request of a client to add to a signal.
type Addition struct {
	Subject string // 1 to 512 bytes, more if that is allowed to fairness or throttle keys
	Name    string // 1 to 64 of a-z 0-9 _ - .
	Value   float64
	AtMs    *int64 // Unix milliseconds, not later than now; nil: now
}

// AddNow adds what a client has given, and writes the record. It reports whether another pair has made room for it. The
// error is ErrInvalid for what is outside the bounds.
func (s *Signals) AddNow(a *Addition, w writes.Batch) (evicted bool, err error) {
	if err := s.Check(a.Subject, a.Name); err != nil {
		return false, err
	}
	if !(math.Abs(a.Value) <= valueMax) { // NaN is not
		return false, fmt.Errorf("%w: the value of a signal is a number up to %s either way", refusals.ErrInvalid, strconv.FormatFloat(valueMax, 'f', -1, 64))
	}
	var p *Pair
	switch at, now := a.AtMs, time.Unix(0, w.Now).UnixMilli(); {
	case at == nil:
		p = s.pairs.Add(a.Subject, a.Name, w.Now, a.Value)
	case *at < 0 || *at > now:
		return false, fmt.Errorf("%w: AT is a time in the past, in Unix milliseconds; the broker's is %d now", refusals.ErrInvalid, now)
	default:
		p = s.pairs.AddAt(a.Subject, a.Name, *at*int64(time.Millisecond), a.Value)
	}
	s.write(p, w)
	s.points.Arm(w.Now)
	return s.evict(w), nil
}

// Check returns ErrInvalid for a subject or name outside the bounds.
func (s *Signals) Check(subject, name string) error {
	if err := CheckName(subject, name, s.names); err != nil {
		return fmt.Errorf("%w: %w", refusals.ErrInvalid, err)
	}
	return nil
}

// Get describes a pair; ok is false if there is none.
func (s *Signals) Get(subject, name string, now int64) (i Info, ok bool) {
	p := s.pairs.Get(subject, name)
	if p == nil {
		return Info{}, false
	}
	return s.pairs.Info(p, now), true
}

// Of iterates over the pairs of a subject in the order of their names, from those after a name on. The table must not
// change meanwhile.
func (s *Signals) Of(subject, after string) iter.Seq[*Pair] { return s.pairs.Of(subject, after) }

// Info describes a pair.
func (s *Signals) Info(p *Pair, now int64) Info { return s.pairs.Info(p, now) }

// Page returns the pairs whose subjects match among up to count after the cursor, in the order of their age, how many were
// looked at, and the next cursor. Both cursors are 0 at the ends.
func (s *Signals) Page(cursor uint64, count int, now int64, match func(subject string) bool) (next uint64, list []Info, looked int) {
	next = s.pairs.Page(cursor, count, func(p *Pair) {
		if looked++; match(p.Subject()) {
			list = append(list, s.pairs.Info(p, now))
		}
	})
	return next, list, looked
}

// Has reports whether there is a pair, or any of a subject if the name is empty.
func (s *Signals) Has(subject, name string) bool { return s.pairs.First(subject, name) != nil }

// Delete removes a pair that there is, or the first one of a subject if the name is empty, with its record.
func (s *Signals) Delete(subject, name string, w writes.Batch) {
	p := s.pairs.First(subject, name)
	s.pairs.Remove(p)
	s.deleteRecord(p, w)
}

// Report takes the number of an invariant and a description of what breaks it.
type Report func(no int, format string, args ...any)

// CheckAll verifies that pairs are found and listed once, and that what is unwritten will be written (27).
func (s *Signals) CheckAll(bad Report) {
	n := 0
	s.pairs.Page(0, math.MaxInt, func(p *Pair) {
		if n++; s.pairs.Get(p.Subject(), p.Name()) != p {
			bad(27, "signal %q of %q is not found", p.Name(), p.Subject())
		}
	})
	if n != s.pairs.Len() {
		bad(27, "%d signals are listed, %d found", n, s.pairs.Len())
	}
	if n := s.points.Forgotten(); n > 0 {
		bad(27, "%d signals are not written, and no checkpoint is due", n)
	}
}
