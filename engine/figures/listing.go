package figures

import (
	"cmp"
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/internal/states"
)

// Judged is what is said of a queue when all are listed.
type Judged struct {
	State    states.State
	Troubles TroubleSet
	Dead     int64 // dead messages that are shown with it
	Ready    int64 // messages
	Since    int64 // since when the longest of these is ready, Unix nanoseconds; 0: that is not known
	Keys     int64
	In, Out  float64 // enqueued and delivered in a second, in the last seconds
}

// Column is what a listing of queues is sorted by.
type Column uint8

// The columns. The greatest come first, and of equal ones the first names.
const (
	ColumnName Column = iota // by name alone
	ColumnTrouble
	ColumnReady
	ColumnLeased
	ColumnDelayed
	ColumnDead
	ColumnAge // how long a message is ready
	ColumnIn
	ColumnOut
	ColumnWait // what 99 % of the deliveries have waited at most
	ColumnKeys
	ColumnWaiters
	ColumnDropped
)

// Columns is the number of columns.
const Columns = int(ColumnDropped) + 1

// String returns the word for the column.
func (c Column) String() string {
	return [...]string{"name", "trouble", "ready", "leased", "delayed", "dead", "age", "in", "out", "wait", "keys", "waiters", "dropped"}[c]
}

// value returns the number of a queue in a column.
func (q *Queue) value(of Column, j *Judged) int64 {
	const digits = 1000 // of rates
	n := q.byStatus(q.Dead)
	switch of {
	case ColumnName: // no number: the names decide
	case ColumnTrouble:
		return j.Troubles.rank(j.Dead + j.Ready)
	case ColumnReady:
		return j.Ready
	case ColumnLeased:
		return n.Leased
	case ColumnDelayed:
		return n.Delayed
	case ColumnDead:
		return j.Dead
	case ColumnAge:
		if j.Since == 0 {
			return math.MinInt64
		}
		return -j.Since
	case ColumnIn:
		return int64(j.In * digits)
	case ColumnOut:
		return int64(j.Out * digits)
	case ColumnWait:
		return int64(summary(q.durations.Wait).P99)
	case ColumnKeys:
		return j.Keys
	case ColumnWaiters:
		return q.Waiters
	case ColumnDropped:
		return int64(q.events[Dropped])
	}
	return 0
}

// Place is where a queue stands in a listing.
type Place struct {
	Value int64 // in the column
	Name  string
}

// Cursor returns the place as a text.
func (p Place) Cursor() string {
	return strconv.FormatInt(p.Value, 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(p.Name))
}

// ParseCursor returns the place that is written so, and whether it is one.
func ParseCursor(cursor string) (Place, bool) {
	value, name, _ := strings.Cut(cursor, ".")
	v, err := strconv.ParseInt(value, 10, 64)
	b, wrong := base64.RawURLEncoding.DecodeString(name)
	return Place{v, string(b)}, err == nil && wrong == nil && name != ""
}

// Sort is an order of queues, from a place on.
type Sort struct {
	By      Column
	Reverse bool   // the other way round
	After   *Place // the queues behind it; nil: from the beginning
}

// Listing finds the first queues of a sorted listing, or the first ones behind a place, whatever the order in which they
// are offered. A page depends on no other one: a queue whose value changes meanwhile may be in both, or in none.
type Listing[Q any] struct {
	Sort
	Count int // queues, at least 1

	kept intrusive.Heap[*listed[Q]] // the last one first
	more bool                       // others come behind them
}

type listed[Q any] struct {
	Place
	reverse bool
	index   int
	queue   Q
}

// Before reports whether a queue comes after another one in the listing.
func (l *listed[Q]) Before(o *listed[Q]) bool { return o.Place.precedes(l.Place, l.reverse) }

// Index returns where the heap stores the index.
func (l *listed[Q]) Index() *int { return &l.index }

// precedes reports whether a place comes before another one.
func (p Place) precedes(o Place, reverse bool) bool {
	order := cmp.Or(cmp.Compare(o.Value, p.Value), strings.Compare(p.Name, o.Name))
	return order != 0 && (order < 0) != reverse
}

// Offer adds a queue that may be among the first.
func (l *Listing[Q]) Offer(name string, q *Queue, j *Judged, queue Q) {
	p := Place{q.value(l.By, j), name}
	if l.After != nil && !l.After.precedes(p, l.Reverse) {
		return
	}
	if l.kept.Len() == l.Count {
		l.more = true
		last, _ := l.kept.First()
		if !p.precedes(last.Place, l.Reverse) {
			return
		}
		l.kept.Remove(last)
	}
	l.kept.Push(&listed[Q]{Place: p, reverse: l.Reverse, queue: queue})
}

// TakeLast takes out the last queue of the page. The first one that is taken out has the place behind which the next page
// begins, if there is one.
func (l *Listing[Q]) TakeLast() (queue Q, place Place, ok bool) {
	last, ok := l.kept.First()
	if !ok {
		return queue, place, false
	}
	l.kept.Remove(last)
	return last.queue, last.Place, true
}

// More reports whether there is a next page.
func (l *Listing[Q]) More() bool { return l.more }
