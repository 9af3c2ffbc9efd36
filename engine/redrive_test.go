package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/redriving"
	"github.com/faisca/fila/storage"
)

// scanStore counts the messages that are read by scans.
type scanStore struct {
	*storage.Memory
	messages int
}

func (s *scanStore) Scan(f storage.Family, from, to []byte) storage.Iterator {
	it := s.Memory.Scan(f, from, to)
	if f == storage.Messages {
		return &scanIterator{it, s}
	}
	return it
}

type scanIterator struct {
	storage.Iterator
	store *scanStore
}

func (it *scanIterator) Next() bool {
	it.store.messages++
	return it.Iterator.Next()
}

// twoGroups is a dead-letter queue with many messages of one error and some of another, spread
// among them.
type twoGroups struct {
	*world
	store  *scanStore
	others []ID
	wanted []ID
}

const wantedGroup = "no customer #"

func newTwoGroups(t *testing.T, others, wanted int) *twoGroups {
	t.Helper()
	g := &twoGroups{store: &scanStore{Memory: storage.NewMemory()}}
	g.world = openWorld(t, g.store, time.Unix(1_700_000_000, 0), func(c *Config) { c.Window = 16 })
	for _, q := range []string{"a", "b"} {
		g.queue(q, QueueOptions{DLQ: nil})
	}
	every := others/wanted + 1
	var tasks []*Task
	ids := make([]ID, others+wanted)
	for i := range ids {
		req := &Enqueue{Queue: "a", Key: "k", Payload: []byte("m")}
		if err := g.Prepare(req); err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, &Task{Call: callFunc(func(tx *Tx) (err error) { ids[i], err = tx.Enqueue(req); return err })})
	}
	g.Do(tasks...)
	at := map[ID]int{}
	for i, id := range ids {
		at[id] = i
		if i%every == every-1 || i >= len(ids)-(wanted-len(ids)/every) {
			g.wanted = append(g.wanted, id)
		} else {
			g.others = append(g.others, id)
		}
	}
	for {
		ds := g.world.lease("a", 1000)
		if len(ds) == 0 {
			return g
		}
		tasks = tasks[:0]
		for _, d := range ds {
			text := fmt.Sprintf("no customer %d", at[d.Receipt.ID])
			if !slices.Contains(g.wanted, d.Receipt.ID) {
				text = "timeout"
			}
			nack := &Nack{Queue: "a", Receipt: d.Receipt, Error: text, Delay: -1, Dead: true}
			tasks = append(tasks, &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Nack(nack); return err })})
		}
		g.Do(tasks...)
	}
}

// in returns the messages of a queue.
func (w *world) in(queue string) (ids []ID) {
	w.t.Helper()
	return w.search(Browse{Queue: queue, Count: 1000}).ids
}

// moved returns how far the redrive of a queue is.
func (w *world) redriveOf(queue string) (info RedriveInfo) {
	w.t.Helper()
	w.must(func(tx *Tx) (err error) { info, err = tx.RedriveInfo(queue); return err })
	return info
}

// One of two groups goes back, at a rate, stopped and begun again, also after a restart. The
// other group stays, and no message of it is read twice by one redrive.
func TestOneGroupOfTwoIsRedrivenAndTheOtherIsUntouched(t *testing.T) {
	const others, wanted, rate = 4000, 40, 20
	g := newTwoGroups(t, others, wanted)
	if len(g.others) != others || len(g.wanted) != wanted {
		t.Fatalf("the scene is not set: %d and %d", len(g.others), len(g.wanted))
	}
	begin := func() {
		req := &Redrive{DLQ: "a.dlq", Rate: rate, Filter: &Filter{Error: new(wantedGroup), Origin: "a"}}
		g.must(func(*Tx) error { return nil })
		g.Do(&Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Redrive(req); return err })})
	}
	begin()
	g.store.messages = 0
	second := 0
	for range 10 { // of a tenth of a second
		g.Advance(100 * time.Millisecond)
		now := int(g.redriveOf("a.dlq").Moved)
		if now < second {
			t.Error("the progress goes back")
		}
		second = now
	}
	if second < rate/2 || second > rate+1 {
		t.Errorf("%d messages were moved in a second, at a rate of %d", second, rate)
	}
	if info := g.redriveOf("a.dlq"); !info.Running || *info.Error != wantedGroup || info.From != "a" || info.Looked < info.Moved*others/wanted {
		t.Errorf("it is shown as %+v", info)
	}
	if n := g.store.messages; n > others+wanted {
		t.Errorf("%d messages were read to move %d of %d", n, second, others+wanted)
	}
	g.must(func(tx *Tx) error { _, err := tx.StopRedrive("a.dlq"); return err })
	g.Advance(time.Second)
	if now := int(g.redriveOf("a.dlq").Moved); now > second+1 || now == wanted {
		t.Errorf("%d were moved after the stop", now-second)
	}

	g.world = openWorld(t, g.store, g.now, nil)
	if g.redriveOf("a.dlq").Running {
		t.Error("it runs after a restart by itself")
	}
	g.store.messages = 0
	begin()
	g.Advance(time.Minute)
	info := g.redriveOf("a.dlq")
	if info.Running || info.Skipped != 0 {
		t.Errorf("it has ended as %+v", info)
	}
	if n := g.store.messages; n > 2*(others+wanted) {
		t.Errorf("%d messages were read to move %d of %d", n, info.Moved, others+wanted)
	}
	if got := g.in("a.dlq"); !slices.Equal(got, g.others) {
		t.Errorf("of %d messages of the other group %d are there", others, len(got))
	}
	got := g.in("a")
	slices.SortFunc(got, compareIDs)
	if !slices.Equal(got, g.wanted) {
		t.Errorf("of %d messages of the group %d have come back", wanted, len(got))
	}
	g.sound()
}

func compareIDs(a, b ID) int { return strings.Compare(string(a[:]), string(b[:])) }

// The messages of the other group cost the loop nothing, however many they are: each page that
// is read beside it is one unit of a turn.
func TestARedriveOfOneGroupKeepsToTheBudgetOfATurn(t *testing.T) {
	const others = 3 * redriving.LooksMax
	g := newTwoGroups(t, others, 1)
	req := &Redrive{DLQ: "a.dlq", Filter: &Filter{Error: new(wantedGroup)}}
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) error { _, err := tx.Redrive(req); return err })}
	g.Do()
	before := g.core.health.counters.turns
	turns := g.untilDone(task, nil)
	if info := g.redriveOf("a.dlq"); info.Moved != 1 || info.Looked != others+1 {
		t.Errorf("it has ended as %+v", info)
	}
	if turns > 40 || g.core.health.counters.turns-before > 40 {
		t.Errorf("%d turns for %d pages", turns, others/redriving.LooksMax+1)
	}
}

func TestARedriveTakesMessagesOfOneQueueOnly(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("a", QueueOptions{})
	w.queue("b", QueueOptions{DLQ: new("a.dlq")})
	w.die("a", "x", "y")
	fromB := w.die("b", "x", "y")
	n := 0
	req := &Redrive{DLQ: "a.dlq", Filter: &Filter{Origin: "b"}}
	w.must(func(tx *Tx) (err error) { n, err = tx.Redrive(req); return err })
	if n != 2 || !slices.Equal(w.in("b"), fromB) || len(w.in("a.dlq")) != 2 {
		t.Errorf("%d were moved: b has %v, %d are left", n, w.in("b"), len(w.in("a.dlq")))
	}
	bad := &Redrive{DLQ: "a.dlq", Filter: &Filter{Error: new("[")}}
	if err := w.do(func(tx *Tx) error { _, err := tx.Redrive(bad); return err }); !errors.Is(err, ErrInvalid) {
		t.Errorf("a pattern with a mistake: %v", err)
	}
}

// A message that fails anew while its page is read stays: its error is another one.
func TestAMessageThatFailsAnewDuringARedriveOfItsGroupStays(t *testing.T) {
	for text, want := range map[string]int64{"timeout": 1, "disk full": 0} {
		w := newWorld(t, nil)
		w.queue("a", QueueOptions{})
		w.die("a", "timeout")
		d := w.lease("a.dlq", 1)[0]
		req := &Nack{Queue: "a.dlq", Receipt: d.Receipt, Error: "timeout"}
		w.must(func(tx *Tx) error { _, err := tx.Nack(req); return err })
		redrive := &Redrive{DLQ: "a.dlq", Filter: &Filter{Error: new("timeout")}}
		task := w.start(func(tx *Tx) error { _, err := tx.Redrive(redrive); return err })
		var ds []*Delivery
		w.start(func(tx *Tx) (err error) {
			ds, err = tx.Lease(&LeaseRequest{Queues: []string{"a.dlq"}, Count: 1, Block: -1})
			return err
		})
		if len(ds) != 1 {
			t.Fatal("nothing to lease")
		}
		w.start(func(tx *Tx) error {
			_, err := tx.Nack(&Nack{Queue: "a.dlq", Receipt: ds[0].Receipt, Error: text})
			return err
		})
		w.Do()
		if info := w.redriveOf("a.dlq"); !task.Done() || info.Moved != want || info.Skipped != 1-want {
			t.Errorf("failed with %q: %+v, %v", text, info, task.Err())
		}
		w.sound()
	}
}

// The answer to a redrive waits for its first page, also where that is read later than the client is answered otherwise.
func TestARedriveWhosePageIsLateIsAnsweredWithAllOfIt(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("a", QueueOptions{})
	w.die("a", "x", "y")
	n := 0
	req := &Redrive{DLQ: "a.dlq"}
	task := w.start(func(tx *Tx) (err error) { n, err = tx.Redrive(req); return err })
	w.Lazy = func() bool { return true }
	w.Advance(2 * time.Second)
	w.Lazy = nil
	if task.Done() {
		t.Errorf("it is answered with %d while its page is read", n)
	}
	w.Do()
	if !task.Done() || n != 2 {
		t.Errorf("answered %v, with %d", task.Done(), n)
	}
}
