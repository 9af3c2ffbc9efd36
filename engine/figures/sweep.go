package figures

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/engine/internal/states"
)

// KeyFigures are what a sweep has found about the fairness keys of a queue that have messages. The
// slices are shared and must not be changed.
type KeyFigures struct {
	States      states.ByState   // keys in each state
	OldestReady time.Time        // since when the message that is ready longest is ready; zero: none in memory
	Top         [Orders][]string // the first keys in each order, at most TopKeysMax
	SweptAt     time.Time        // when; zero: the queue has had no key since it was created or purged
}

// Order is an order of fairness keys, the greatest first.
type Order uint8

// The orders.
const (
	ByDepth     Order = iota // messages
	ByAge                    // how long the first message is ready
	ByDelivered              // deliveries since the start of the broker
	ByBehind                 // how far the share of the last minute is below the fair share, of keys that may deliver
	Orders      = 4          // the number of orders
)

// TopKeysMax is the number of keys that a sweep retains in each order.
const TopKeysMax = 100

// Add adds the figures of another queue, except for what a sum does not have.
func (f *KeyFigures) Add(o *KeyFigures) {
	for i := range o.States {
		f.States[i].Join(&o.States[i])
	}
	if t := o.OldestReady; !t.IsZero() && (f.OldestReady.IsZero() || t.Before(f.OldestReady)) {
		f.OldestReady = t
	}
}

// Sweep is a look at all fairness keys of all queues, in slices, that all requests share. The engine
// walks the queues in the order of their numbers and hands each key to Add.
//
//	idle     the results are in the queues (Swept), and at says since when
//	running  at the queue with the number No, behind the key with the number Cursor
//
//	idle → running    Recent: the results are too old
//	running → idle    Finish: all queues are swept that existed when it began
//	running → running Recent: no request has advanced it for some time, so that a part of the results is
//	                  too old; it begins again
type Sweep struct {
	Running bool
	No, End uint32 // the queue that is being swept, and the first one that is too new
	Cursor  uint64 // of its keys
	Seen    int    // keys of this queue

	at       int64 // end of the last sweep, Unix nanoseconds; 0: none
	advanced int64 // when it was last advanced
	keys     KeyFigures
	oldest   int64
	top      [Orders]topList
}

// Recent reports whether the last results are at most of an age. Else it begins a sweep of the queues below
// end, unless one is running, which the caller advances.
func (s *Sweep) Recent(now, age int64, end uint32) bool {
	if !s.Running && s.at != 0 && now-s.at <= age {
		return true
	}
	if !s.Running || now-s.advanced > age {
		*s = Sweep{Running: true, No: 1, End: end, at: s.at}
	}
	s.advanced = now
	return false
}

// Sample is a fairness key with messages.
type Sample struct {
	Name      string
	State     states.State // not Empty
	Depth     int64        // messages
	Ready     int64        // of these, those that are neither leased nor delayed
	Delivered uint64       // since the start of the broker
	Since     int64        // when its first message in memory became ready; 0: there is none
	Behind    float64      // how far its share is below the fair share, if it may deliver; else 0
}

// BehindScale makes whole numbers of differences between shares.
const BehindScale = 1e12

// Add counts a key of the queue that is being swept.
func (s *Sweep) Add(now int64, k Sample) {
	s.Seen++
	s.keys.States[k.State].Add(1, k.Ready, k.Since, k.Name)
	s.top[ByDepth].offer(k.Depth, k.Name)
	s.top[ByDelivered].offer(int64(k.Delivered), k.Name)
	if k.Since != 0 {
		if s.oldest == 0 || k.Since < s.oldest {
			s.oldest = k.Since
		}
		s.top[ByAge].offer(now-k.Since+1, k.Name)
	}
	s.top[ByBehind].offer(int64(k.Behind*BehindScale), k.Name)
}

// Conclude gives the queue what was found, nil if it has no key.
func (s *Sweep) Conclude(q *Queue, now int64) {
	if q.swept = nil; s.Seen == 0 {
		return
	}
	f := s.keys
	f.SweptAt = time.Unix(0, now)
	if s.oldest != 0 {
		f.OldestReady = time.Unix(0, s.oldest)
	}
	for i := range s.top {
		f.Top[i] = s.top[i].names()
	}
	q.swept = &f
}

// Next goes on to the next number.
func (s *Sweep) Next() {
	*s = Sweep{Running: true, No: s.No + 1, End: s.End, at: s.at, advanced: s.advanced}
}

// Finish ends the sweep: all queues are swept.
func (s *Sweep) Finish(now int64) { s.Running, s.at = false, now }

// Swept returns what the last sweep has found about the keys of the queue; nil: there was none, or it
// had no keys.
func (q *Queue) Swept() *KeyFigures { return q.swept }

// topList finds the TopKeysMax keys with the greatest values, of which only positive ones count.
type topList struct {
	list  []topKey // at most twice as many
	least int64    // a value up to which no other key belongs into the list
}

type topKey struct {
	value int64
	name  string
}

// offer adds a key if it may be among those with the greatest values.
func (l *topList) offer(value int64, name string) {
	if value <= l.least {
		return
	}
	if l.list = append(l.list, topKey{value, name}); len(l.list) == 2*TopKeysMax {
		l.cut()
	}
}

// cut sorts the list, and leaves TopKeysMax keys in it.
func (l *topList) cut() {
	slices.SortFunc(l.list, func(a, b topKey) int {
		return cmp.Or(cmp.Compare(b.value, a.value), strings.Compare(a.name, b.name))
	})
	if len(l.list) > TopKeysMax {
		clear(l.list[TopKeysMax:])
		l.list = l.list[:TopKeysMax]
		l.least = l.list[TopKeysMax-1].value
	}
}

// names returns the keys, the one with the greatest value first.
func (l *topList) names() []string {
	l.cut()
	names := make([]string, len(l.list))
	for i := range l.list {
		names[i] = l.list[i].name
	}
	return names
}
