package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// unique enqueues a message with a unique id into q, and returns its id.
func (w *world) unique(id string, change func(*Enqueue)) ID {
	w.t.Helper()
	req := &Enqueue{Queue: "q", Key: "k", Meta: Meta{Unique: id}, Payload: []byte(id)}
	if change != nil {
		change(req)
	}
	return w.send(*req)
}

// A message with a unique id ends in each of the ways there are, from each status, with and
// without a restart before it. The id is taken until then, and free in the same write.
func TestAUniqueIDIsFreeWithTheEndOfItsMessage(t *testing.T) {
	delayed := func(req *Enqueue) { req.Delay = time.Hour }
	mortal := func(req *Enqueue) { req.TTL = time.Minute }
	ack := func(w *world, id ID) { w.ackID(id) }
	cancel := func(w *world, id ID) {
		req := &Cancel{Queue: "q", IDs: []ID{id}}
		w.must(func(tx *Tx) error { _, err := tx.Cancel(req); return err })
	}
	purgeKey := func(w *world, _ ID) {
		req := &Purge{Queue: "q", Key: "k"}
		w.must(func(tx *Tx) error { _, err := tx.Purge(req); return err })
	}
	purge := func(w *world, _ ID) {
		req := &Purge{Queue: "q"}
		w.must(func(tx *Tx) error { _, err := tx.Purge(req); return err })
	}
	dead := func(w *world, id ID) {
		w.must(func(tx *Tx) error {
			_, err := tx.Nack(&Nack{Queue: "q", Receipt: Receipt{ID: id, Bare: true}, Dead: true, Delay: -1})
			return err
		})
	}
	remove := func(w *world, _ ID) {
		w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) })
		w.queue("q", QueueOptions{})
	}
	for _, x := range []struct {
		name   string
		first  func(*Enqueue)
		leased bool
		noDLQ  bool
		end    func(w *world, id ID)
	}{
		{"ack", nil, true, false, ack},
		{"dead letter", nil, true, false, dead},
		{"drop", nil, true, true, dead},
		{"attempts", nil, true, false, func(w *world, _ ID) { w.Advance(time.Minute) }},
		{"cancel of a ready one", nil, false, false, cancel},
		{"cancel of a delayed one", delayed, false, false, cancel},
		{"cancel of a leased one", nil, true, false, cancel},
		{"purge of a key", nil, false, false, purgeKey},
		{"purge of a key with a lease", nil, true, false, purgeKey},
		{"purge of a key with a delay", delayed, false, false, purgeKey},
		{"purge", nil, false, false, purge},
		{"purge with a lease", nil, true, false, purge},
		{"deletion", nil, true, false, remove},
		{"time to live", mortal, false, false, func(w *world, _ ID) { w.Advance(time.Minute) }},
		{"time to live without a dead-letter queue", mortal, false, true, func(w *world, _ ID) { w.Advance(time.Minute) }},
		{"time to live of a leased one", mortal, true, false, func(w *world, _ ID) { w.Advance(2 * time.Minute) }},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", x.name, restart), func(t *testing.T) {
				w := newWorld(t, func(c *Config) { c.Window, c.WindowTotal, c.DueWindow, c.BodyBytes = 2, 2, 2, 0 })
				w.queue("q", QueueOptions{NoDLQ: x.noDLQ, Given: queueset.Given{queueset.MaxAttempts: 1, queueset.Visibility: 30_000}})
				for range 3 { // the message is on disk only
					w.enqueue("q", "k", "other")
				}
				id := w.unique("u", x.first)
				if x.leased {
					w.leaseAllOf("q")
					w.Advance(time.Second) // the lease is written
				}
				if restart {
					w.restart()
				}
				if again := w.unique("u", delayed); again != id {
					t.Errorf("while it is there, the id is that of %s", again)
				}
				x.end(w, id)
				if left := uniqueEntries(w.store); len(left) != 0 {
					t.Errorf("taken after the end: %v", left)
				}
				if restart {
					w.restart()
				}
				next := w.unique("u", delayed)
				if next == id || w.unique("u", nil) != next {
					t.Errorf("after its end, %s is %s", id, next)
				}
				if owners := uniqueEntries(w.store); len(owners) != 1 {
					t.Errorf("the store has %v", owners)
				}
			})
		}
	}
}

// leaseAllOf leases all messages of a queue that are ready.
func (w *world) leaseAllOf(queue string) {
	w.t.Helper()
	for len(w.lease(queue, 4)) > 0 {
		continue
	}
}

// ackID acks a message by its id.
func (w *world) ackID(id ID) {
	w.t.Helper()
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{{ID: id, Bare: true}}); return err })
}

// A look-up that is too old is repeated: it may have missed that the id was taken or freed.
func TestAnOldLookUpOfAUniqueIDIsRepeated(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	prepare := func() *Enqueue {
		req := &Enqueue{Queue: "q", Meta: Meta{Unique: "u"}, Payload: []byte("x")}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		return req
	}
	stored := func(req *Enqueue) (id ID) {
		t.Helper()
		w.must(func(tx *Tx) (err error) { id, err = tx.Enqueue(req); return err })
		return id
	}
	free := prepare()
	first := w.unique("u", nil)
	w.Advance(time.Minute) // what the engine remembers of recent batches is gone
	if id := stored(free); id != first {
		t.Errorf("a request from before the first message stored %s", id)
	}
	taken := prepare()
	w.lease("q", 1)
	w.ackID(first)
	w.Advance(time.Minute)
	if id := stored(taken); id == first {
		t.Error("a request from before the ack is answered with the message that was acked")
	}
}

// A redrive takes the id again. If another message has it, the dead one stays and is counted.
func TestARedriveLeavesAMessageWhoseUniqueIDIsTaken(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	die := func(id ID) {
		w.lease("q", 9)
		w.must(func(tx *Tx) error {
			_, err := tx.Nack(&Nack{Queue: "q", Receipt: Receipt{ID: id, Bare: true}, Dead: true, Delay: -1})
			return err
		})
	}
	redrive := func() (moved int, info RedriveInfo) {
		t.Helper()
		req := &Redrive{DLQ: "q.dlq"}
		w.must(func(tx *Tx) (err error) { moved, err = tx.Redrive(req); return err })
		return moved, w.redriveOf("q.dlq")
	}
	first := w.unique("u", nil)
	die(first)
	second := w.unique("u", nil)
	die(second)
	w.restart()
	if moved, info := redrive(); moved != 1 || info.Taken != 1 || info.Skipped != 1 {
		t.Errorf("of two dead messages with one id %d were moved: %+v", moved, info)
	}
	if id := w.unique("u", nil); id != first {
		t.Errorf("the id is that of %s after the redrive, want %s", id, first)
	}
	w.lease("q", 1)
	w.ackID(first)
	if moved, info := redrive(); moved != 1 || info.Taken != 0 {
		t.Errorf("%d were moved: %+v", moved, info)
	}
	die(second)
	w.must(func(tx *Tx) error { return tx.CreateQueue("other", QueueOptions{}) })
	req := &Redrive{DLQ: "q.dlq", To: "other"}
	w.must(func(tx *Tx) error { _, err := tx.Redrive(req); return err })
	if id := w.unique("u", func(req *Enqueue) { req.Queue = "other" }); id != second {
		t.Errorf("in the other queue the id is that of %s, want %s", id, second)
	}
	if n := len(uniqueEntries(w.store)); n != 1 {
		t.Errorf("%d ids are taken", n)
	}
}

// Both ids: the unique one is asked first, and a request that it answers leaves no trace of the other.
func TestUniqueIsAskedBeforeDedup(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.DedupWindow: 60_000}})
	both := func(unique, dedup string) ID {
		return w.unique(unique, func(req *Enqueue) { req.Dedup = dedup })
	}
	first, other := both("u", "d"), both("v", "e")
	if id := both("u", "e"); id != first {
		t.Errorf("answered with %s", id)
	}
	if id := both("u", "f"); id != first {
		t.Errorf("answered with %s", id)
	}
	if id := both("w", "e"); id != other {
		t.Errorf("answered with %s, want that of the deduplication id", id)
	}
	if id := both("w", "f"); id == first || id == other {
		t.Errorf("answered with %s: an id was recorded without a message", id)
	}
	w.lease("q", 1)
	w.ackID(first)
	if id := both("u", "d"); id != first {
		t.Errorf("answered with %s: the deduplication id goes by time", id)
	}
}

func TestUniqueIDsAreAsLongAsDeduplicationIDs(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	longest := w.core.cfg.Limits.Dedup
	w.unique(strings.Repeat("x", longest), nil)
	err := w.Prepare(&Enqueue{Queue: "q", Meta: Meta{Unique: strings.Repeat("x", longest+1)}})
	if !errors.Is(err, ErrTooBig) || !strings.Contains(err.Error(), "UNIQUE") {
		t.Errorf("one byte more: %v", err)
	}
}

// A message without a unique id takes what it took: a pointer more is within its size class.
func TestAMessageIsInItsSizeClass(t *testing.T) {
	if n := unsafe.Sizeof(message{}); n > 160 {
		t.Errorf("a message takes %d bytes, the next size class of the allocator is 176", n)
	}
}

// A publish asks each queue by itself, also when its look-ups have become too old.
func TestAPublishAsksEachQueueForAUniqueID(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"q", "r"} {
		w.queue(name, QueueOptions{})
		w.must(func(tx *Tx) error { _, err := tx.Bind("t", Binding{Queue: name}); return err })
	}
	first := w.unique("u", nil)
	req := &Publish{Topic: "t", Message: Enqueue{Meta: Meta{Unique: "u"}, Payload: []byte("x")}}
	if err := w.PreparePublish(req); err != nil {
		t.Fatal(err)
	}
	w.lease("q", 1)
	w.ackID(first)
	again := w.unique("u", nil)
	w.Advance(time.Minute)
	var list []Published
	w.must(func(tx *Tx) (err error) { list, err = tx.Publish(req); return err })
	if len(list) != 2 || list[0].ID != again || list[1].ID == again {
		t.Errorf("published %v, q has %s", list, again)
	}
	if n := len(uniqueEntries(w.store)); n != 2 {
		t.Errorf("%d ids are taken", n)
	}
}

// The hook of an enqueue that is answered with an earlier message runs, and nothing that it decides
// takes effect.
func TestTheHookOfAUniqueDuplicateChangesNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	first := w.unique("u", nil)
	ran := 0
	w.script(func(*hook.Message, hook.View) (hook.EnqueueDecision, error) {
		ran++
		return hook.EnqueueDecision{Key: "other", Weight: 7, Cost: 9, Priority: new(uint8(9)), Delay: new(time.Hour)}, nil
	})
	if id := w.unique("u", nil); id != first || ran != 1 {
		t.Errorf("answered with %s after %d calls of the hook, want %s after one", id, ran, first)
	}
	if n := w.counts("q"); n.Keys != 1 || n.Ready != 1 || n.Delayed != 0 || n.Deduplicated != 1 {
		t.Errorf("the queue has %+v", n)
	}
	if d := w.lease("q", 2); len(d) != 1 || d[0].Key != "k" || d[0].Receipt.ID.Rank() != defaultRank {
		t.Errorf("delivered %+v", d)
	}
}

// In the store, a message without a unique id has the two records it always had.
func TestAMessageWithoutAUniqueIDHasNoEntry(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{NoDLQ: true})
	w.enqueue("q", "k", "x")
	w.unique("u", nil)
	n := 0
	it := w.store.Scan(storage.Dedup, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; ok = it.Next() {
		n++
	}
	if n != 1 {
		t.Errorf("%d entries, want that of the message with an id", n)
	}
}
