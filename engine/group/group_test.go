package group

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/writes"
	"github.com/faisca/fila/storage"
)

// model is what the groups of a random program should be: each member by itself.
type model struct {
	t       *testing.T
	tab     Table
	store   map[string][]byte
	batch   writes.Batch
	members []*member
	queues  map[uint32]bool // that exist
	next    uint32
}

type member struct {
	group uint64
	queue uint32
	state string // pending, buried, or how it has ended
}

func newModel(t *testing.T, most int) *model {
	t.Helper()
	m := &model{t: t, store: map[string][]byte{}, batch: writes.Batch{Batch: &storage.Batch{}, Number: 1, Now: 1}, queues: map[uint32]bool{}}
	m.tab.Inside().Fold(most)
	m.reset()
	for range 3 {
		m.next++
		m.queues[m.next] = true
	}
	return m
}

func (m *model) reset() {
	m.tab.Reset()
	if err := m.tab.Recover(storage.NewMemory(), time.Hour, 1); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) cut() {
	m.t.Helper()
	m.tab.Records(m.batch.Batch)
	err := m.batch.Each(func(r storage.Record) error {
		if r.Op == storage.OpPut {
			m.store[string(r.Key)] = bytes.Clone(r.Value)
		} else {
			delete(m.store, string(r.Key))
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.batch.Reset()
}

// restart reads the records into a new table.
func (m *model) restart() {
	m.reset()
	for _, kind := range []string{storage.StateGroup, storage.StateGroupCount} {
		for _, key := range slices.Sorted(maps.Keys(m.store)) {
			value := m.store[key]
			of, number, queue, ok := storage.GroupOf([]byte(key))
			switch {
			case !ok || of != kind:
			case kind == storage.StateGroup:
				var head storage.Group
				if err := head.Decode(value); err != nil {
					m.t.Fatal(err)
				}
				m.tab.Restore(number, head)
			default:
				var n storage.GroupCount
				if err := n.Decode(value); err != nil {
					m.t.Fatal(err)
				}
				m.tab.RestoreCount(number, queue, n, m.queues[queue])
			}
		}
	}
	m.tab.Restored()
}

// check compares the groups with their members.
func (m *model) check() {
	m.tab.Check(func(no int, format string, args ...any) {
		m.t.Errorf("invariant %d: %s", no, fmt.Sprintf(format, args...))
	})
	want := map[uint64]*Counts{}
	for g := range m.tab.roster.All() {
		want[g.number] = &Counts{}
	}
	for _, x := range m.members {
		n := want[x.group]
		if n == nil {
			continue
		}
		switch x.state {
		case "pending":
			n.Pending++
		case "buried", "dead":
			n.Dead++
		case "done":
			n.Done++
		case "cancelled":
			n.Cancelled++
		}
	}
	for g := range m.tab.roster.All() {
		if g.Counts != *want[g.number] {
			m.t.Fatalf("group %s counts %+v, its members are %+v", g.Name, g.Counts, *want[g.number])
		}
	}
}

func (m *model) queue(rng *rand.Rand) uint32 {
	for {
		if q := 1 + rng.Uint32N(m.next); m.queues[q] {
			return q
		}
	}
}

// reclaim ends the members of queues that are gone as Reclaim does.
func (m *model) reclaim() {
	for m.tab.Lost() {
		m.tab.Reclaim(3)
	}
	for _, x := range m.members {
		g := m.tab.Numbered(x.group)
		if m.queues[x.queue] || g == nil {
			continue
		}
		switch x.state {
		case "pending":
			x.state = "cancelled"
		case "buried":
			x.state = "dead"
			if g.WhenDone && !g.IsCancelled() {
				x.state = "cancelled"
			}
		}
	}
}

func TestRandomProgramsCountEachMemberOnce(t *testing.T) {
	all := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible on purpose
		m := newModel(t, 1+rng.IntN(4))
		finished, opened := 0, 0
		for step := range 400 {
			var x *member
			if len(m.members) > 0 {
				x = m.members[rng.IntN(len(m.members))]
			}
			switch n := rng.IntN(20); {
			case n == 0:
				opened++
				m.tab.begin(storage.Group{Name: fmt.Sprint("g", opened), WhenDone: rng.IntN(2) == 0}, uint64(step)<<32)
			case n < 8:
				m.tab.Walk(rng.Uint64N(uint64(opened)+1), 1, func(g *Group) {
					if g.Open() {
						q := m.queue(rng)
						m.tab.Join(g, q)
						m.members = append(m.members, &member{group: g.number, queue: q, state: "pending"})
					}
				})
			case n == 8:
				m.tab.Walk(0, 1, func(g *Group) {
					if g.Open() && rng.IntN(3) == 0 {
						m.tab.Seal(g, 1)
					}
				})
			case n == 9:
				m.tab.Walk(rng.Uint64N(uint64(opened)+1), 1, func(g *Group) {
					if !g.IsCancelled() && rng.IntN(4) == 0 {
						m.tab.Cancel(g, 1, "")
					}
				})
			case n == 10 && rng.IntN(4) == 0:
				q := m.queue(rng)
				delete(m.queues, q)
				m.next++
				m.queues[m.next] = true
				m.tab.Detach(q)
				if rng.IntN(2) == 0 {
					m.cut()
					m.restart()
				}
				m.reclaim()
			case n == 11 && rng.IntN(4) == 0:
				m.cut()
				m.restart()
			case x == nil || !m.queues[x.queue] || x.state != "pending" && x.state != "buried":
			case n < 16:
				m.end(x, End(rng.IntN(3)))
			default:
				m.move(x, m.queue(rng))
			}
			for g := m.tab.Over(); g != nil; g = m.tab.Over() {
				if g.Pending != 0 || g.Open() || g.WhenDone && g.Dead > 0 && !g.IsCancelled() {
					t.Errorf("seed %d: %+v is over", seed, g)
				}
				m.tab.Finish(g, storage.ID{}, m.batch)
				finished++
			}
			m.check()
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
		m.cut()
		for key := range m.store {
			if _, number, _, ok := storage.GroupOf([]byte(key)); ok && m.tab.Numbered(number) == nil {
				t.Fatalf("seed %d: a record of a group that has come to its end is left", seed)
			}
		}
		all += finished
	}
	if all < 500 {
		t.Errorf("%d groups have come to their ends", all)
	}
}

// end ends a member.
func (m *model) end(x *member, how End) {
	g := m.tab.Numbered(x.group)
	died := x.state == "buried"
	x.state = [...]string{"done", "dead", "cancelled"}[how]
	if died {
		if x.state = "dead"; g != nil && g.WhenDone && !g.IsCancelled() {
			x.state = "cancelled"
		}
	}
	m.tab.End(x.group, x.queue, died, how)
}

// move moves a member: a pending one dies, a buried one is redriven.
func (m *model) move(x *member, to uint32) {
	g := m.tab.Numbered(x.group)
	from, died := x.queue, x.state == "buried"
	still := m.tab.Move(x.group, from, to, died, !died)
	if g == nil {
		if still {
			m.t.Error("a message is a member of a group that has come to its end")
		}
		x.state = "left"
		return
	}
	switch x.queue = to; {
	case !died:
		x.state = "buried"
	case g.IsCancelled():
		x.state = "dead"
	default:
		x.state = "pending"
	}
	if still == (died && g.IsCancelled()) {
		m.t.Errorf("a member that moves still is one: %v", still)
	}
}

func TestTheMessageOfAnInnerGroupIsAPendingMember(t *testing.T) {
	m := newModel(t, 0)
	outer := m.tab.begin(storage.Group{Name: "outer"}, 0)
	inner := m.tab.begin(storage.Group{Name: "inner", Outer: outer.number}, 0)
	other := m.tab.begin(storage.Group{Name: "other", Outer: outer.number}, 0)
	m.tab.Seal(outer, 1)
	if outer.Pending != 2 || m.tab.AnyOver() {
		t.Errorf("%d pending", outer.Pending)
	}
	if !m.tab.Enter(inner.Outer, 1) || outer.Pending != 2 {
		t.Errorf("after it was enqueued: %d pending", outer.Pending)
	}
	m.cut()
	m.restart()
	outer = m.tab.Get("outer")
	m.tab.Cancel(outer, 2, "enough")
	if outer.Pending != 1 || outer.Cancelled != 1 || m.tab.Enter(other.Outer, 1) {
		t.Errorf("after the cancel: %+v", outer.Counts)
	}
	m.tab.End(other.Outer, 0, false, Cancelled) // once only
	m.tab.End(outer.number, 1, false, Done)
	if outer.Counts != (Counts{Done: 1, Cancelled: 1}) || m.tab.Over() != outer {
		t.Errorf("at the end: %+v", outer.Counts)
	}
}

// TestQueuesWithoutMembersTakeNoMemory has the members of one group pass through many queues.
func TestQueuesWithoutMembersTakeNoMemory(t *testing.T) {
	const queues = 10 * pairsMost
	m := newModel(t, 0)
	g := m.tab.begin(storage.Group{Name: "g"}, 0)
	m.tab.Join(g, 1) // a member that stays
	for queue := range uint32(queues) {
		m.queues[queue+2] = true
		m.tab.Join(g, queue+2)
		m.tab.End(g.number, queue+2, false, End(queue%3))
		if queue%100 == 0 {
			m.cut()
		}
	}
	check := func() {
		t.Helper()
		m.tab.Check(func(_ int, format string, args ...any) { t.Errorf(format, args...) })
		if sum := (Counts{Pending: 1, Done: queues/3 + 1, Dead: queues / 3, Cancelled: queues / 3}); g.Counts != sum {
			t.Errorf("%+v are counted, want %+v", g.Counts, sum)
		}
		if n := len(m.tab.pairs); n > pairsMost {
			t.Errorf("%d pairs are in memory", n)
		}
	}
	check()
	m.cut()
	if n := len(m.store); n > pairsMost+1 {
		t.Errorf("%d records are stored", n)
	}
	m.restart()
	g = m.tab.Get("g")
	check()
	for queue := range uint32(queues) { // all of them busy: none is folded
		m.queues[queue+2] = true
		m.tab.Join(g, queue+2)
	}
	if n := len(m.tab.pairs); n < queues || g.Pending != queues+1 {
		t.Errorf("%d pairs, %d pending", n, g.Pending)
	}
}
