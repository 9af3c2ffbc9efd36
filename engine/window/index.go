package window

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// Entry is an entry of an index by time: a message is due at a time.
type Entry[M any] struct {
	At      int64              // Unix nanoseconds
	Key     storage.MessageKey // of the message
	Message M                  // what the engine has of it; zero: nothing, it is on disk only
	due     Due
	i       int // in the heap

	intrusive.Links[Entry[M]] // entries of the same queue in memory
}

// NewEntry returns an entry that is in no index.
func NewEntry[M any](at int64, mk storage.MessageKey, m M) *Entry[M] {
	return &Entry[M]{At: at, Key: mk, Message: m, due: Due(storage.AppendScheduledKey(nil, at, mk))}
}

// Position returns the key of its record: entries are ordered by it.
func (d *Entry[M]) Position() Due { return d.due }

// Before reports whether the entry is before another one.
func (d *Entry[M]) Before(o *Entry[M]) bool { return d.due < o.due }

// Index returns where the heap stores the place of the entry.
func (d *Entry[M]) Index() *int { return &d.i }

// ReadDue reads at most that many entries of an index from a position on, and closes the iterator. next is that of the
// first entry that was not read; "": there are no more.
func ReadDue[M any](it storage.Iterator, from Due, most int) (found []*Entry[M], next Due, err error) {
	defer it.Close()
	for ok := it.Seek([]byte(from)); ok; ok = it.Next() {
		if len(found) == most {
			next = Due(it.Key())
			break
		}
		at, mk, err := storage.ParseScheduledKey(it.Key())
		if err != nil {
			return nil, "", err
		}
		var none M
		found = append(found, NewEntry(at, mk, none))
	}
	return found, next, it.Err()
}

// Index is a durable index of messages by time. All entries are on disk; the head, which is all entries
// before the edge, is also in memory. The zero value is complete and has none.
type Index[M any] struct {
	heap intrusive.Heap[*Entry[M]]
	edge *edge[Due]
	// byID finds the entry of a message in the head, byQueue those of each queue that has any.
	byID    map[storage.ID]*Entry[M]
	byQueue map[uint32]*intrusive.List[Entry[M], *Entry[M]]
}

// Len returns the number of entries in the head.
func (x *Index[M]) Len() int { return x.heap.Len() }

// First returns the entry that is due first, as far as the head tells; ok is false if it is empty.
func (x *Index[M]) First() (d *Entry[M], ok bool) { return x.heap.First() }

// All returns the entries of the head in no order. The slice must not be changed.
func (x *Index[M]) All() []*Entry[M] { return x.heap.Entries() }

// Find returns the entry of a message in the head, or nil.
func (x *Index[M]) Find(id storage.ID) *Entry[M] { return x.byID[id] }

// OfQueue returns the first entry of a queue in the head, or nil. Next leads to the others.
func (x *Index[M]) OfQueue(no uint32) *Entry[M] { return x.byQueue[no].Head() }

// Add adds an entry that is new on disk, and reports whether it has joined the head.
func (x *Index[M]) Add(d *Entry[M]) bool {
	if x.Restore(d) {
		return true
	}
	x.edge.added(d.due)
	return false
}

// Restore puts an entry that was on disk all the time into the head, if it belongs there.
func (x *Index[M]) Restore(d *Entry[M]) bool {
	if !x.edge.before(d.due) {
		return false
	}
	x.push(d)
	return true
}

func (x *Index[M]) push(d *Entry[M]) {
	x.heap.Push(d)
	if x.byID == nil {
		x.byID, x.byQueue = map[storage.ID]*Entry[M]{}, map[uint32]*intrusive.List[Entry[M], *Entry[M]]{}
	}
	x.byID[d.Key.ID] = d
	of := x.byQueue[d.Key.Queue]
	if of == nil {
		of = &intrusive.List[Entry[M], *Entry[M]]{}
		x.byQueue[d.Key.Queue] = of
	}
	of.PushBack(d)
}

// Remove takes an entry out of the head. Its record on disk may stay.
func (x *Index[M]) Remove(d *Entry[M]) {
	x.heap.Remove(d)
	x.unlist(d)
}

// unlist removes an entry from byID and byQueue.
func (x *Index[M]) unlist(d *Entry[M]) {
	delete(x.byID, d.Key.ID)
	of := x.byQueue[d.Key.Queue]
	if of.Remove(d); of.Len() == 0 {
		delete(x.byQueue, d.Key.Queue)
	}
}

// Removed records that an entry which is not in the head is deleted from disk: a read under way may
// still see it. Their number has no bound: an index must go on whatever clients do, and a read
// has few entries.
func (x *Index[M]) Removed(d Due) { x.edge.change(d, math.MaxInt) }

// StartAt leaves everything from a position on to the disk. The head must be before it.
func (x *Index[M]) StartAt(d Due) { x.edge = x.edge.retreat(d) }

// Trim leaves the later half of the head to the disk, and returns it. It partitions the heap by a
// middle entry instead of sorting it.
func (x *Index[M]) Trim() []*Entry[M] {
	all := x.heap.Entries()
	middle := middleOf(all)
	n := 0
	for i, d := range all {
		if d.Before(middle) {
			all[n], all[i] = d, all[n]
			n++
		}
	}
	rest := slices.Clone(all[n:])
	clear(all[n:])
	x.heap.Rebuild(all[:n])
	x.edge = x.edge.retreat(middle.due)
	for _, d := range rest {
		x.unlist(d)
	}
	return rest
}

// middleOf returns an entry from the middle of the order: the median of a sample of up to
// 64 entries. The same entries give the same result, as a turn must be deterministic.
func middleOf[M any](all []*Entry[M]) *Entry[M] {
	const most = 64
	var sample []*Entry[M]
	for i := 0; i < len(all); i += (len(all) + most - 1) / most {
		sample = append(sample, all[i])
	}
	slices.SortFunc(sample, func(a, b *Entry[M]) int { return strings.Compare(string(a.due), string(b.due)) })
	return sample[len(sample)/2]
}

// Wants reports whether more entries are on disk only, and none are being read.
func (x *Index[M]) Wants() bool { return x.edge != nil && x.edge.stage == none }

// Issue begins a read, and returns the edge, where it starts. More must be on disk.
func (x *Index[M]) Issue(r *Read[Due]) Due { return x.edge.issue(r) }

// End ends the read under way: Merge may follow then.
func (x *Index[M]) End(r *Read[Due]) { x.edge.end(r) }

// Merge adds what a read that has ended found in order to the head, and advances the edge behind it: to
// next, where the read stopped, if there is more. A stale read changes nothing.
func (x *Index[M]) Merge(r *Read[Due], found []*Entry[M], next Due, more bool) {
	var joined []*Entry[M]
	x.edge, joined, _ = merge(x.edge, r, found, next, more)
	for _, d := range joined {
		x.push(d)
	}
}

// Check verifies that the head has only entries before the edge, and that heap, map and the lists by
// queue have the same entries, for tests.
func (x *Index[M]) Check() error {
	listed := 0
	for no, of := range x.byQueue {
		for d := of.Head(); d != nil; d = d.Next() {
			if listed++; d.Key.Queue != no || x.byID[d.Key.ID] != d || d.Next() != nil && d.Next().Prev() != d || of.Len() == 0 {
				return fmt.Errorf("message %s is listed by mistake", d.Key.ID)
			}
		}
	}
	if listed != x.heap.Len() || listed != len(x.byID) {
		return fmt.Errorf("%d of %d messages are listed", listed, x.heap.Len())
	}
	for i, d := range x.heap.Entries() {
		if d.i != i || x.byID[d.Key.ID] != d || !x.edge.before(d.due) {
			return fmt.Errorf("entry %d of message %s is broken", i, d.Key.ID)
		}
	}
	return nil
}
