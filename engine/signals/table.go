// Package signals keeps sums that fade with time for pairs of a subject and a name, such as the
// failures of a tenant. Signals is all of them, with what requests may give and what is written when; a Table has a
// bounded number of pairs and knows which of them have to be written. One goroutine changes both. Any other may read a
// View at the same time.
package signals

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"github.com/faisca/fila/engine/internal/decay"
	"github.com/faisca/fila/storage"
)

// Pair is the sums of one subject and name. A table with 1,000,000 of them takes at most 256 bytes
// for each, besides subject and name.
type Pair struct {
	links   [2]links // in Table.order and Table.changed
	sum     decay.Sum
	key     string // as in the store: the subject with its length, then the name
	number  uint64 // by age, for cursors
	split   uint16 // where the name begins
	changed bool   // the record lacks additions
	stored  bool   // there may be a record
}

// Subject returns the subject.
func (p *Pair) Subject() string { return p.key[2:p.split] }

// Name returns the name.
func (p *Pair) Name() string { return p.key[p.split:] }

// Key returns the key of the record.
func (p *Pair) Key() string { return p.key }

// keyOf returns the key of the record of a pair, which is valid until the next call.
func (t *Table) keyOf(p *Pair) []byte {
	t.scratch = append(t.scratch[:0], p.key...)
	return t.scratch
}

// Stored reports whether the store may have a record of the pair.
func (p *Pair) Stored() bool { return p.stored }

// Time returns the time of the newest value in Unix nanoseconds.
func (p *Pair) Time() int64 { return p.sum.Time() }

// Table is all pairs. Its maximum is enforced by calls of Surplus.
type Table struct {
	windows *decay.Windows
	max     int

	byKey    map[string]*Pair         // finds a pair for each addition
	byName   btree.Map[string, *Pair] // lists the names of a subject; readers have copies
	byNumber *btree.BTreeG[*Pair]     // lists pages
	last     uint64                   // number of the newest pair
	view     *View                    // nil: pairs have come or gone since the last one
	order    chain                    // all pairs: the old one was touched longest ago
	dirty    int                      // changed pairs
	changed  chain                    // the changed ones, in the order in which they became so
	moment   decay.Weights            // of the last additions
	scratch  []byte                   // for keys
}

// treeDegree is small, since a view lets each change copy the nodes on a path.
const treeDegree = 8

// NewTable returns an empty table for a number of pairs.
func NewTable(windows *decay.Windows, most int) *Table {
	return &Table{
		windows: windows, max: most, byKey: map[string]*Pair{},
		byName: *btree.NewMap[string, *Pair](treeDegree), byNumber: btree.NewBTreeGOptions(func(a, b *Pair) bool { return a.number < b.number }, btree.Options{NoLocks: true}),
		moment: windows.At(0), changed: chain{of: 1},
	}
}

// Len returns the number of pairs.
func (t *Table) Len() int { return len(t.byKey) }

// Get returns a pair, or nil.
func (t *Table) Get(subject, name string) *Pair {
	t.scratch = storage.AppendSignalKey(t.scratch[:0], subject, name)
	return t.byKey[string(t.scratch)]
}

// Add adds a value at the present, in Unix nanoseconds, and returns its pair, which is the last one
// touched. A pair whose newest value is later, because the clock was set back, gets the value at the
// time of that one.
func (t *Table) Add(subject, name string, now int64, v float64) *Pair {
	p := t.touch(subject, name)
	if at := p.sum.Time(); at > now {
		m := t.windows.At(at)
		p.sum.Add(t.windows, &m, v)
		return p
	}
	if t.moment.Time() != now {
		t.moment = t.windows.At(now)
	}
	p.sum.Add(t.windows, &t.moment, v)
	return p
}

// AddAt is Add for a time that the client gives, which may be past.
func (t *Table) AddAt(subject, name string, at int64, v float64) *Pair {
	p := t.touch(subject, name)
	m := t.windows.At(at)
	p.sum.Add(t.windows, &m, v)
	return p
}

// touch returns a pair as the last one touched, and as changed. It makes the pair if there is none.
func (t *Table) touch(subject, name string) *Pair {
	p := t.Get(subject, name)
	switch {
	case p == nil:
		p = t.insert(newPair(string(t.scratch)))
	case p != t.order.new:
		t.order.remove(p)
		t.order.add(p)
	}
	if !p.changed {
		p.changed = true
		t.dirty++
		t.changed.add(p)
	}
	return p
}

func newPair(key string) *Pair {
	return &Pair{key: key, split: 2 + uint16(key[0])<<8 + uint16(key[1])}
}

// NewPair returns a pair with the key and the sums of a record, for Restore.
func (t *Table) NewPair(key string, rec *storage.Signal) *Pair {
	p := newPair(key)
	p.stored = true
	st := decay.State{At: rec.At, All: rec.All}
	for i, w := range rec.Windows {
		st.By[i] = decay.Stored{Length: time.Duration(w.LengthMs) * time.Millisecond, Sum: w.Sum}
	}
	p.sum.Restore(t.windows, &st)
	return p
}

// Restore adds the pairs of the store to an empty table. That with the oldest value counts as touched
// longest ago.
func (t *Table) Restore(all []*Pair) {
	slices.SortFunc(all, func(a, b *Pair) int {
		return cmp.Or(cmp.Compare(a.sum.Time(), b.sum.Time()), strings.Compare(a.key, b.key))
	})
	for _, p := range all {
		t.insert(p)
	}
}

func (t *Table) insert(p *Pair) *Pair {
	t.last++
	p.number = t.last
	t.byKey[p.key] = p
	t.byName.Set(p.key, p)
	t.byNumber.Set(p)
	t.order.add(p)
	t.view = nil
	return p
}

// Remove removes a pair.
func (t *Table) Remove(p *Pair) {
	delete(t.byKey, p.key)
	t.byName.Delete(p.key)
	t.byNumber.Delete(p)
	t.order.remove(p)
	t.clean(p)
	t.view = nil
}

// Surplus removes the pair touched longest ago and returns it, if there are more than the maximum;
// else it returns nil.
func (t *Table) Surplus() *Pair {
	if len(t.byKey) <= t.max {
		return nil
	}
	p := t.order.old
	t.Remove(p)
	return p
}

// links are the neighbours of a pair in a chain.
type links struct{ before, after *Pair }

// chain is a list of pairs in the order in which they were added.
type chain struct {
	old, new *Pair
	of       int // index in Pair.links
}

func (c *chain) add(p *Pair) {
	p.links[c.of] = links{before: c.new}
	if c.new != nil {
		c.new.links[c.of].after = p
	} else {
		c.old = p
	}
	c.new = p
}

func (c *chain) remove(p *Pair) {
	l := &p.links[c.of]
	if l.before != nil {
		l.before.links[c.of].after = l.after
	} else {
		c.old = l.after
	}
	if l.after != nil {
		l.after.links[c.of].before = l.before
	} else {
		c.new = l.before
	}
	*l = links{}
}

// Unwritten returns the number of pairs whose records lack additions.
func (t *Table) Unwritten() int { return t.dirty }

// NextUnwritten returns the pair whose record has lacked additions for longest, nil if there is none.
// Record makes it the next one's turn. Further additions leave a pair where it is, so one that is
// added to all the time is written as soon as any other.
func (t *Table) NextUnwritten() *Pair { return t.changed.old }

// Record returns the record of a pair, which the caller stores.
func (t *Table) Record(p *Pair) storage.Signal {
	t.clean(p)
	p.stored = true
	st := p.sum.State(t.windows)
	rec := storage.Signal{At: st.At, All: st.All}
	for i, w := range st.By {
		rec.Windows[i] = storage.SignalWindow{LengthMs: uint64(w.Length.Milliseconds()), Sum: w.Sum}
	}
	return rec
}

func (t *Table) clean(p *Pair) {
	if p.changed {
		p.changed = false
		t.dirty--
		t.changed.remove(p)
	}
}

// Of iterates over the pairs of a subject in the order of their names, from those after a name on.
// The table must not change meanwhile.
func (t *Table) Of(subject, after string) iter.Seq[*Pair] { return of(&t.byName, subject, after) }

func of(tree *btree.Map[string, *Pair], subject, after string) iter.Seq[*Pair] {
	from := string(storage.AppendSignalKey(nil, subject, after))
	prefix := from[:len(from)-len(after)]
	return func(yield func(*Pair) bool) {
		tree.Ascend(from, func(key string, p *Pair) bool {
			if !strings.HasPrefix(key, prefix) {
				return false
			}
			return after != "" && key == from || yield(p)
		})
	}
}

// First returns the pair of a subject and a name, or the first one of the subject if the name is empty;
// nil if there is none.
func (t *Table) First(subject, name string) *Pair {
	if name != "" {
		return t.Get(subject, name)
	}
	for p := range t.Of(subject, "") {
		return p
	}
	return nil
}

// Page visits up to count pairs after the cursor, in the order of their age, and returns the next
// cursor. Both are 0 at the ends.
func (t *Table) Page(cursor uint64, count int, visit func(*Pair)) (next uint64) {
	t.byNumber.Ascend(&Pair{number: cursor + 1}, func(p *Pair) bool {
		if count == 0 {
			next = cursor
			return false
		}
		count--
		cursor = p.number
		visit(p)
		return true
	})
	return next
}

// Info is a pair at one moment.
type Info struct {
	Subject, Name string
	UpdatedAt     time.Time // of the newest value

	sums    [decay.WindowsMax + 1]float64
	windows *decay.Windows
}

// Info describes a pair at a time in Unix nanoseconds.
func (t *Table) Info(p *Pair, now int64) Info {
	i := Info{Subject: p.Subject(), Name: p.Name(), UpdatedAt: time.Unix(0, p.Time()), windows: t.windows}
	for w := range t.windows.Len() + 1 {
		i.sums[w] = p.sum.Value(t.windows, w, now)
	}
	return i
}

// Sums iterates over the windows by name, the shortest first, and ends with decay.All.
func (i *Info) Sums() iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for w := 0; i.windows != nil && w <= i.windows.Len(); w++ {
			if !yield(i.windows.Name(w), i.sums[w]) {
				return
			}
		}
	}
}

// Velocity is the rate per second in the first window less that in the second; ok is false if there is
// only one.
func (i *Info) Velocity() (v float64, ok bool) {
	if i.windows == nil || i.windows.Len() < 2 {
		return 0, false
	}
	return i.sums[0]/i.windows.Length(0).Seconds() - i.sums[1]/i.windows.Length(1).Seconds(), true
}

// View is the pairs of a table at one moment, for other goroutines. Sums that are there go on: only
// pairs that have come or gone since are missing. The zero value is empty.
type View struct {
	windows *decay.Windows
	pairs   *btree.Map[string, *Pair]
}

// View returns the pairs of this moment. It takes the same time for any number of them; while a view
// is used, each pair that comes or goes copies O(log n) nodes.
func (t *Table) View() *View {
	if t.view == nil {
		t.view = &View{windows: t.windows, pairs: t.byName.Copy()}
	}
	return t.view
}

// Value returns the sum of a pair in the window of a name, the first one if it is empty, at a time in
// Unix nanoseconds; 0 if there is no such pair. The error names the windows that there are.
func (v *View) Value(subject, name, window string, now int64) (float64, error) {
	if v.pairs == nil {
		return 0, nil
	}
	i, ok := 0, true
	if window != "" {
		i, ok = v.windows.Index(window)
	}
	if !ok {
		return 0, fmt.Errorf("no window %.20q, there are %s", window, v.windows)
	}
	if len(subject) > subjectMax {
		return 0, nil
	}
	p, ok := v.pairs.Get(string(storage.AppendSignalKey(nil, subject, name)))
	if !ok {
		return 0, nil
	}
	return p.sum.Value(v.windows, i, now), nil
}

// subjectMax is what fits a key of the store; the engine's limit is lower.
const subjectMax = 1 << 15

// Count returns how many names a subject has, up to a number.
func (v *View) Count(subject string, most int) (n int) {
	if v.pairs == nil || len(subject) > subjectMax {
		return 0
	}
	for range of(v.pairs, subject, "") {
		if n++; n == most {
			break
		}
	}
	return n
}
