package window

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/faisca/fila/storage"
)

// Random programs against a model of the disk, which is a sorted list. Reads run at any time after they
// were issued and return at any later time, also those that were dropped.

// fault is a planted fault, which programs must find.
type fault int

const (
	noFault    fault = iota
	unseenLost       // an entry that is added behind the edge does not bound a read
	changeLost       // a change behind the edge is not recorded
	staleLost        // a read goes on although its edge has retreated
	oldMerged        // the result of a read that was dropped is merged
)

// plant breaks what an edge knows about the read under way.
func plant[P position[P]](f fault, e *edge[P]) {
	if e == nil || e.read == nil {
		return
	}
	switch f {
	case unseenLost:
		e.read.bounded = false
	case changeLost:
		e.read.changed = nil
	case staleLost:
		e.read.stale = false
	case noFault, oldMerged:
	}
}

// state is that of a message on disk.
type state int

const (
	ready state = iota
	leased
	delayed
)

// record is a message on disk. Its version changes whenever the message changes.
type record struct {
	item
	state state
}

// sorted is what is on disk, in order.
type sorted[P position[P], R positioned[P]] []R

// search returns the index of the first record at a position or behind it, and whether it is at it.
func (l sorted[P, R]) search(p P) (int, bool) {
	return slices.BinarySearchFunc(l, p, func(r R, p P) int {
		switch at := r.Position(); {
		case at.Less(p):
			return -1
		case at == p:
			return 0
		default:
			return 1
		}
	})
}

// get returns the record at a position; the zero value if there is none.
func (l sorted[P, R]) get(p P) (r R) {
	if i, ok := l.search(p); ok {
		return l[i]
	}
	return r
}

func (l *sorted[P, R]) put(r R) {
	i, _ := l.search(r.Position())
	*l = slices.Insert(*l, i, r)
}

func (l *sorted[P, R]) remove(p P) {
	if i, ok := l.search(p); ok {
		*l = slices.Delete(*l, i, i+1)
	}
}

// one returns a record that matches, chosen at random; the zero value if there is none.
func (l sorted[P, R]) one(rng *rand.Rand, matches func(R) bool) (r R) {
	if len(l) == 0 {
		return r
	}
	from := rng.IntN(len(l))
	for i := range l {
		if r := l[(from+i)%len(l)]; matches(r) {
			return r
		}
	}
	return r
}

// lateRead is a read of a window.
type lateRead struct {
	Read[Place]
	from  Place
	limit int
	ran   bool
	found []*item
	next  Place
	more  bool
}

// program is a key with its messages.
type program struct {
	*rand.Rand
	fault  fault
	w      Window[*item]
	disk   sorted[Place, *record]
	last   uint32
	reads  []*lateRead // that have not returned
	paused *Read[Place]
	fails  []string
}

func (s *program) fail(format string, args ...any) {
	s.fails = append(s.fails, fmt.Sprintf(format, args...))
}

// one returns a message in a state, chosen at random, or nil.
func (s *program) one(want state) *record {
	return s.disk.one(s.Rand, func(r *record) bool { return r.state == want })
}

const most = 6 // messages of a window

func (s *program) enqueue() {
	s.last++
	p := Place{Rank: uint8(s.IntN(3))}
	p.ID[0], p.ID[1], p.ID[2] = byte(s.last>>16), byte(s.last>>8), byte(s.last)
	s.disk.put(&record{item: item{p: p}})
	s.w.Add(&item{p: p}, p, true, most)
}

// deliver leases the next message, which must be the first of all that are ready.
func (s *program) deliver() {
	if s.w.Len() == 0 {
		return
	}
	m := s.w.Pop()
	i := slices.IndexFunc(s.disk, func(r *record) bool { return r.state == ready })
	if i < 0 || s.disk[i].p != m.p {
		s.fail("%v is delivered and is not the first", m.p)
		return
	}
	s.disk[i].state = leased
}

// end removes a message that is leased.
func (s *program) end() {
	if r := s.one(leased); r != nil {
		s.disk.remove(r.p)
		s.w.Changed(r.p)
	}
}

// release makes a message ready again.
func (s *program) release() {
	if r := s.one(leased); r != nil {
		r.version, r.state = r.version+1, ready
		s.w.Changed(r.p)
		s.add(r)
	}
}

func (s *program) add(r *record) { s.w.Add(&item{r.p, r.version}, r.p, false, most) }

// extract takes a ready message out of the head, in which it is if it is before the edge.
func (s *program) extract(p Place) {
	if m := s.w.Remove(p); (m != nil) != s.w.Before(p) {
		s.fail("%v: removed %v, before the edge %v", p, m, s.w.Before(p))
	}
	s.w.Changed(p)
}

func (s *program) remove() {
	if r := s.one(ready); r != nil {
		s.extract(r.p)
		s.disk.remove(r.p)
	}
}

func (s *program) delay() {
	if r := s.one(ready); r != nil {
		s.extract(r.p)
		r.version, r.state = r.version+1, delayed
	}
}

// due makes a delayed message ready, which is in memory or on disk only.
func (s *program) due() {
	switch r := s.one(delayed); {
	case r == nil:
	case s.IntN(2) == 0:
		r.state = ready
		s.add(r)
	default:
		r.state = ready
		s.left(s.w.AddOnDisk(r.p))
	}
}

func (s *program) left(rest []*item) {
	for _, m := range rest {
		if s.w.Before(m.p) {
			s.fail("%v was left to the disk and is before the edge", m.p)
		}
	}
}

func (s *program) issue() {
	if s.w.Wants() && s.paused == nil {
		r := &lateRead{limit: 1 + s.IntN(4)}
		r.from = s.w.Issue(&r.Read)
		s.reads = append(s.reads, r)
	}
}

// run has a read look at the disk as it is now. Delayed messages count, and are not found.
func (s *program) run(r *lateRead) {
	i, _ := s.disk.search(r.from)
	rest := s.disk[i:]
	r.ran, r.more = true, len(rest) > r.limit
	for _, d := range rest[:min(r.limit, len(rest))] {
		r.next = d.p.Next()
		if d.state != delayed {
			r.found = append(r.found, &item{d.p, d.version})
		}
	}
}

// read has a read run or return. It may fail then.
func (s *program) read() {
	if len(s.reads) == 0 {
		return
	}
	i := s.IntN(len(s.reads))
	r := s.reads[i]
	if !r.ran {
		s.run(r)
		return
	}
	s.reads = slices.Delete(s.reads, i, i+1)
	if !s.w.End(&r.Read) && (s.fault != oldMerged || s.w.edge == nil) {
		return
	}
	if s.IntN(8) == 0 {
		s.paused = s.w.BackOff()
		return
	}
	found := slices.DeleteFunc(r.found, func(m *item) bool { d := s.disk.get(m.p); return d != nil && d.state == leased })
	s.w.Merge(&r.Read, found, r.next, r.more)
}

// giveUp drops the read under way, and sometimes what is in memory.
func (s *program) giveUp() {
	if s.IntN(2) == 0 {
		s.left(s.w.Cut(0))
	}
	if s.w.More() {
		s.paused = s.w.BackOff()
	}
}

func (s *program) step() {
	switch n := s.IntN(100); {
	case n < 24:
		s.enqueue()
	case n < 44:
		s.deliver()
	case n < 54:
		s.end()
	case n < 60:
		s.release()
	case n < 66:
		s.remove()
	case n < 70:
		s.delay()
	case n < 75:
		s.due()
	case n < 76:
		s.left(s.w.Cut(s.IntN(4)))
	case n < 77:
		s.giveUp()
	case n < 83:
		s.resume()
	case n < 90:
		s.issue()
	default:
		s.read()
	}
	s.w.Request(most / 2)
	plant(s.fault, s.w.edge)
	s.check()
}

func (s *program) resume() {
	if s.paused != nil {
		s.w.Resume(s.paused)
		s.paused = nil
	}
}

// check verifies that the window has exactly the ready messages before the edge, as they are now.
func (s *program) check() {
	if err := s.w.Check(); err != nil {
		s.fail("%v", err)
	}
	if s.w.Awaiting() && !s.w.Reading() {
		s.fail("the window is empty and has asked for no read")
	}
	n := 0
	for _, r := range s.disk {
		if r.state != ready || !s.w.Before(r.p) {
			continue
		}
		n++
		if m := s.w.At(r.p); m == nil || m.version != r.version {
			s.fail("%v is before the edge, and in memory it is %v", r.p, m)
		}
	}
	if n != s.w.Len() {
		s.fail("%d messages are ready before the edge, the window has %d", n, s.w.Len())
	}
}

// runWindow runs a program, and at last has all messages delivered.
func runWindow(seed uint64, f fault) []string {
	s := &program{Rand: rand.New(rand.NewPCG(seed, 0)), fault: f}
	for n := 0; n < 600 && s.fails == nil; n++ {
		s.step()
	}
	for n := 0; s.fails == nil && (s.w.Len() > 0 || s.w.More()); n++ {
		s.deliver()
		s.resume()
		s.issue()
		s.read()
		s.w.Request(most / 2)
		s.check()
		if n == 100_000 {
			s.fail("the window does not end: %+v", s.w.edge)
		}
	}
	if s.fails == nil && slices.ContainsFunc(s.disk, func(r *record) bool { return r.state == ready }) {
		s.fail("a message was not delivered")
	}
	return s.fails
}

// lateScan is a read of an index.
type lateScan struct {
	Read[Due]
	from  Due
	limit int
	ran   bool
	found []*Entry[int]
	next  Due
	more  bool
}

// dueRecord is an entry on disk. One that is out is taken out of the head.
type dueRecord struct {
	*Entry[int]
	out bool
}

// dueProgram is an index.
type dueProgram struct {
	*rand.Rand
	fault fault
	x     Index[int]
	disk  sorted[Due, *dueRecord]
	last  uint32
	read  *lateScan
	fails []string
}

func (s *dueProgram) fail(format string, args ...any) {
	s.fails = append(s.fails, fmt.Sprintf(format, args...))
}

// one returns an entry on disk, chosen at random, or nil.
func (s *dueProgram) one(matches func(*dueRecord) bool) *dueRecord {
	return s.disk.one(s.Rand, matches)
}

const dueWindow = 4

func (s *dueProgram) add() {
	s.last++
	mk := storage.MessageKey{Queue: uint32(s.IntN(2)), Key: "k"}
	mk.ID[0], mk.ID[1] = byte(s.last>>8), byte(s.last)
	d := NewEntry(int64(s.IntN(50)), mk, 0)
	s.disk.put(&dueRecord{Entry: d})
	s.x.Add(d)
	if s.x.Len() > 2*dueWindow {
		for _, d := range s.x.Trim() {
			if s.x.edge.before(d.due) {
				s.fail("%x was left to the disk and is before the edge", d.due)
			}
		}
	}
}

// remove deletes an entry from disk.
func (s *dueProgram) remove() {
	d := s.one(func(*dueRecord) bool { return true })
	if d == nil {
		return
	}
	s.disk.remove(d.due)
	if in := s.x.Find(d.Key.ID); in != nil {
		s.x.Remove(in)
	} else {
		s.x.Removed(d.due)
	}
}

// fire takes the first entry of the head, which must be the first of all that are not out.
func (s *dueProgram) fire() {
	d, ok := s.x.First()
	if !ok {
		return
	}
	i := slices.IndexFunc(s.disk, func(r *dueRecord) bool { return !r.out || r.due == d.due })
	if i < 0 || s.disk[i].due != d.due {
		s.fail("%x is due and is not the first", d.due)
		return
	}
	s.x.Remove(d)
	if s.disk[i].out = s.IntN(2) == 0; !s.disk[i].out {
		s.disk.remove(d.due)
	}
}

// restore ends the time for which an entry is out.
func (s *dueProgram) restore() {
	if d := s.one(func(r *dueRecord) bool { return r.out }); d != nil {
		if d.out = false; s.x.Find(d.Key.ID) == nil {
			s.x.Restore(d.Entry)
		}
	}
}

// scan has a read begin, run or return.
func (s *dueProgram) scan() {
	switch r := s.read; {
	case r == nil && s.x.Wants() && s.x.Len() <= dueWindow/2:
		s.read = &lateScan{limit: 1 + s.IntN(dueWindow)}
		s.read.from = s.x.Issue(&s.read.Read)
	case r == nil:
	case !r.ran:
		i, _ := s.disk.search(r.from)
		rest := s.disk[i:]
		if r.ran, r.more = true, len(rest) > r.limit; r.more {
			r.next = rest[r.limit].due
		}
		for _, d := range rest[:min(r.limit, len(rest))] {
			r.found = append(r.found, NewEntry(d.At, d.Key, 0))
		}
	default:
		s.read = nil
		s.x.End(&r.Read)
		if s.IntN(8) > 0 { // else it has failed
			s.x.Merge(&r.Read, r.found, r.next, r.more)
		}
	}
}

func (s *dueProgram) step() {
	switch n := s.IntN(100); {
	case n < 35:
		s.add()
	case n < 50:
		s.remove()
	case n < 65:
		s.fire()
	case n < 75:
		s.restore()
	default:
		s.scan()
	}
	plant(s.fault, s.x.edge)
	s.check()
}

// check verifies that the head has the entries on disk before the edge. Those that are out may be in it,
// when a read has found them.
func (s *dueProgram) check() {
	if err := s.x.Check(); err != nil {
		s.fail("%v", err)
	}
	for _, d := range s.disk {
		if s.x.Find(d.Key.ID) == nil && s.x.edge.before(d.due) && !d.out {
			s.fail("%x is before the edge and not in memory", d.due)
		}
	}
	for _, d := range s.x.All() {
		if s.disk.get(d.due) == nil {
			s.fail("%x is in memory and not on disk", d.due)
		}
	}
	of := 0
	for no := range uint32(2) {
		for d := s.x.OfQueue(no); d != nil; d = d.Next() {
			of++
		}
	}
	if of != s.x.Len() {
		s.fail("%d entries are listed by queue, the head has %d", of, s.x.Len())
	}
}

func runIndex(seed uint64, f fault) []string {
	s := &dueProgram{Rand: rand.New(rand.NewPCG(seed, 0)), fault: f}
	for n := 0; n < 600 && s.fails == nil; n++ {
		s.step()
	}
	for n := 0; s.fails == nil && (s.x.Len() > 0 || s.x.edge != nil); n++ {
		s.fire()
		s.scan()
		s.check()
		if n == 100_000 {
			s.fail("the index does not end: %+v", s.x.edge)
		}
	}
	if s.fails == nil && slices.ContainsFunc(s.disk, func(d *dueRecord) bool { return !d.out }) {
		s.fail("an entry was not due")
	}
	return s.fails
}

// kinds are the two heads.
func kinds() map[string]func(seed uint64, f fault) []string {
	return map[string]func(uint64, fault) []string{"window": runWindow, "index": runIndex}
}

func TestAHeadHasWhatIsBeforeItsEdge(t *testing.T) {
	for name, run := range kinds() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(200) {
				if fails := run(seed, noFault); fails != nil {
					t.Fatalf("seed %d: %q", seed, fails)
				}
			}
		})
	}
}

func TestProgramsFindPlantedFaults(t *testing.T) {
	for name, run := range kinds() {
		for f, what := range map[fault]string{
			unseenLost: "an addition does not bound a read", changeLost: "a change is not recorded",
			staleLost: "a stale read is merged", oldMerged: "a dropped read is merged",
		} {
			if name == "index" && f == oldMerged {
				continue // its reads are dropped with the memory only
			}
			t.Run(name+": "+what, func(t *testing.T) {
				for seed := range uint64(100) {
					if fails := run(seed, f); fails != nil {
						t.Logf("seed %d: %.200q", seed, fails)
						return
					}
				}
				t.Error("100 seeds have not found the fault")
			})
		}
	}
}
