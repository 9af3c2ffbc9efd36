package engine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/engine/window"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// What must not delay other clients, and what must not be forgotten while it waits.

// tick runs a turn with a slow disk: a read takes two turns.
func (w *world) tick(tasks ...*Task) {
	s := w.Stepper
	s.turn(append(tasks, s.results()...))
	if f := s.flight; f != nil {
		s.flight = nil
		s.commit(f)
	}
	s.flight = s.core.cut()
}

// fill enqueues n messages of a key into "q" and returns their ids. ttl may be nil.
func (w *world) fill(key string, n int, ttl func(i int) time.Duration) (ids []ID) {
	w.t.Helper()
	for i := 0; i < n; {
		tasks := make([]*Task, min(n-i, 1000))
		for j := range tasks {
			req := &Enqueue{Queue: "q", Key: key, Payload: []byte("m")}
			if ttl != nil {
				req.TTL = ttl(i)
			}
			if err := w.Prepare(req); err != nil {
				w.t.Fatal(err)
			}
			tasks[j] = &Task{Call: callFunc(func(tx *Tx) error { id, err := tx.Enqueue(req); ids = append(ids, id); return err })}
			i++
		}
		w.Do(tasks...)
	}
	return ids
}

// deliveries counts the deliveries of each key of "q" to a client that leases 10 messages
// at a time, while meanwhile runs in each turn.
func (w *world) deliveries(turns int, others func() []*Task) map[string]int {
	got, waits := map[string]int{}, false
	for range turns {
		tasks := others()
		if !waits {
			waits = true
			tasks = append(tasks, &Task{Call: callFunc(func(tx *Tx) error {
				ds, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 10, Block: 0})
				waits = err != nil
				for _, d := range ds {
					got[d.Key]++
				}
				return err
			})})
		}
		w.tick(tasks...)
	}
	w.Do()
	return got
}

// Messages behind the edge of a key may be removed as fast as they are read. That delays
// neither the key's other messages nor other keys.
func TestRemovedMessagesDelayNoOthers(t *testing.T) {
	const turns, enough = 200, 300 // a read takes two turns and returns 8 messages of a key
	for name, others := range map[string]func(w *world) (of string, each func() []*Task){
		"cancelled": func(w *world) (string, func() []*Task) {
			ids := w.fill("big", 3000, nil)
			return "big", func() []*Task {
				req := &Cancel{Queue: "q", IDs: ids[len(ids)-1:]}
				ids = ids[:len(ids)-1]
				return []*Task{{Call: callFunc(func(tx *Tx) error { _, err := tx.Cancel(req); return err })}}
			}
		},
		"too old": func(w *world) (string, func() []*Task) {
			w.fill("big", 3000, func(i int) time.Duration { return time.Minute + time.Duration(i*7919%3000)*time.Millisecond })
			w.now = w.now.Add(time.Minute)
			return "big", func() []*Task {
				w.now = w.now.Add(time.Millisecond)
				return nil
			}
		},
		"purged": func(w *world) (string, func() []*Task) {
			w.fill("big", 220*purgePage, nil)
			req := &Purge{Queue: "q", Key: "big"}
			tasks := []*Task{{Call: callFunc(func(tx *Tx) error { _, err := tx.Purge(req); return err })}}
			return "", func() []*Task {
				defer func() { tasks = nil }()
				return tasks
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Window = 8 })
			w.queue("q", QueueOptions{NoDLQ: true})
			of, each := others(w)
			w.fill("small", 2000, nil)
			got := w.deliveries(turns, each)
			if got["small"] < enough || of != "" && got[of] < enough {
				t.Errorf("in %d turns, %v were delivered", turns, got)
			}
		})
	}
}

// A read whose change log is full is invalid and is repeated.
func TestAReadDuringVeryManyChangesIsMadeAgain(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Window = 8 })
	w.queue("q", QueueOptions{})
	ids := w.fill("k", window.ChangedMax+100, nil)
	w.Lazy = func() bool { return true }
	for len(w.core.leases.byID) < 8 { // all others are on disk
		w.tick(&Task{Call: callFunc(func(tx *Tx) error {
			_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 8, Block: -1})
			return err
		})})
	}
	w.Lazy = nil
	req := &Cancel{Queue: "q", IDs: ids[8 : len(ids)-3]}
	w.Do(&Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Cancel(req); return err })})
	if n := len(w.lease("q", 100)); n != 3 {
		t.Errorf("%d messages are left, want 3", n)
	}
}

// A key is in the queue of reads once, also while prefetching is paused.
func TestAKeyStandsOnceInLineForReads(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no room for bodies":   func(c *Config) { c.Window, c.BodyBytes = 8, 0 },
		"no room for messages": func(c *Config) { c.Window, c.WindowTotal = 8, 8 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			w.queue("q", QueueOptions{})
			w.fill("other", 100, nil)
			w.must(func(tx *Tx) error { return tx.PauseKey("q", "other", true) })
			w.fill("k", 2000, nil)
			for range 200 {
				var receipts []Receipt
				for _, d := range w.lease("q", 10) {
					receipts = append(receipts, d.Receipt)
				}
				w.must(func(tx *Tx) error { _, err := tx.Ack("q", receipts); return err })
			}
			if prefetch, urgent := w.core.reads.Waiting(); prefetch+urgent > 4 {
				t.Errorf("two keys stand %d times in line", prefetch+urgent)
			}
		})
	}
}

// Tasks queued behind a wait run before later tasks of the client, also if those are in the
// inbox when the wait ends, or when the memory is rebuilt.
func TestTasksQueuedBehindAWaitRunBeforeLaterOnes(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"its time is over": func(w *world) { w.now = w.now.Add(time.Second) },
		"the store failed": func(w *world) { w.recoverInPlace() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			cl := NewClient(1, func() {})
			var order []string
			say := func(what string) *Task {
				return &Task{Client: cl, Call: callFunc(func(*Tx) error { order = append(order, what); return nil })}
			}
			w.Do(&Task{Client: cl, Call: callFunc(func(tx *Tx) error {
				_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: time.Second})
				return err
			})}, say("first"), say("second"))
			end(w)
			w.Do(say("third"))
			w.Advance(time.Second)
			if got := fmt.Sprint(order); got != "[first second third]" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// blind is a store whose reads fail while it is broken.
type blind struct {
	*storage.Memory
	broken bool
}

var errBlind = errors.New("i/o error")

func (s *blind) Get(f storage.Family, key []byte) ([]byte, error) {
	if s.broken {
		return nil, errBlind
	}
	return s.Memory.Get(f, key)
}

func (s *blind) Reopen() error {
	if s.broken {
		return errBlind
	}
	return s.Memory.Reopen()
}

// While a store can be neither written nor read, every task is still answered.
func TestWaitingTasksAreAnsweredAfterTheStoreCouldNotBeRead(t *testing.T) {
	store := &blind{Memory: storage.NewMemory()}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.queue("empty", QueueOptions{})
	w.enqueue("q", "k", "m")
	cl := NewClient(1, func() {})
	wait := &Task{Client: cl, Call: callFunc(func(tx *Tx) error {
		_, err := tx.Lease(&LeaseRequest{Queues: []string{"empty"}, Count: 1, Block: 0})
		return err
	})}
	behind := &Task{Client: cl, Call: callFunc(func(*Tx) error { return nil })}
	w.Do(wait, behind)
	store.broken = true
	store.FailCommits(errBlind)
	req := &Enqueue{Queue: "q", Payload: []byte("m")}
	if err := w.Prepare(req); err != nil {
		t.Fatal(err)
	}
	if err := w.do(func(tx *Tx) error { _, err := tx.Enqueue(req); return err }); !errors.Is(err, ErrMisconf) {
		t.Errorf("enqueue: %v", err)
	}
	if err := w.do(func(tx *Tx) error { _, err := tx.QueueInfo("q"); return err }); !errors.Is(err, ErrMisconf) {
		t.Errorf("a queue that cannot be read: %v", err)
	}
	store.broken = false
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	w.Do()
	if !wait.Done() || !behind.Done() {
		t.Errorf("answered: the wait %v, what was behind it %v", wait.Done(), behind.Done())
	}
	if wait.Done() && !errors.Is(wait.Err(), ErrMisconf) {
		t.Errorf("the wait ended with %v", wait.Err())
	}
	if n := len(w.lease("q", 10)); n != 1 {
		t.Errorf("%d messages are there, want 1", n)
	}
}

// Ids with the same hash share the list of keys: names can be chosen so that many keys have
// one hash.
func TestALookupSharesTheKeysOfManyIDs(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	ids := w.fill("k", 100, nil)
	l := w.core.newLookup(w.core.queues.byName["q"], ids, nil)
	w.core.closeLog(&l.changeLog)
	for i := range l.wanted {
		if keys := l.wanted[i].keys; len(keys) != 1 || &keys[0] != &l.wanted[0].keys[0] {
			t.Fatalf("id %d has %d keys of its own", i, len(keys))
		}
	}
}

// damaged is a store that cannot read records whose keys begin with a prefix.
type damaged struct {
	*storage.Memory
	prefix []byte
}

func (s *damaged) hit(key []byte) bool { return s.prefix != nil && bytes.HasPrefix(key, s.prefix) }

func (s *damaged) Get(f storage.Family, key []byte) ([]byte, error) {
	if f == storage.Messages && s.hit(key) {
		return nil, storage.ErrCorrupt
	}
	return s.Memory.Get(f, key)
}

func (s *damaged) Scan(f storage.Family, from, to []byte) storage.Iterator {
	it := s.Memory.Scan(f, from, to)
	if f == storage.Messages && s.hit(from) {
		return &damagedIterator{it}
	}
	return it
}

type damagedIterator struct{ storage.Iterator }

func (*damagedIterator) Seek([]byte) bool { return false }
func (*damagedIterator) Next() bool       { return false }
func (*damagedIterator) Err() error       { return storage.ErrCorrupt }

// A key whose records cannot be read is retried and delays no other key: neither in its
// turn, nor by pausing all reads.
func TestADamagedKeyDelaysNoOthers(t *testing.T) {
	for name, ttl := range map[string]func(int) time.Duration{
		"its window cannot be read":           nil,
		"an old message of it cannot be read": func(int) time.Duration { return time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			store := &damaged{Memory: storage.NewMemory()}
			w := openWorld(t, store, time.Unix(1_700_000_000, 0), func(c *Config) { c.Window, c.BodyBytes = 8, 0 })
			w.queue("q", QueueOptions{})
			w.fill("bad", 100, ttl)
			w.fill("good", 1000, nil)
			bad := storage.AppendKeyPrefix(nil, w.core.queues.byName["q"].no, "bad")
			store.prefix = bad
			w.now = w.now.Add(time.Minute)
			got := map[string]int{}
			take := func() {
				var ds []*Delivery
				var receipts []Receipt
				w.Do(&Task{Call: callFunc(func(tx *Tx) (err error) {
					ds, err = tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 10, Block: time.Nanosecond})
					return err
				})})
				w.Advance(time.Nanosecond)
				for _, d := range ds {
					got[d.Key]++
					receipts = append(receipts, d.Receipt)
				}
				w.must(func(tx *Tx) error { _, err := tx.Ack("q", receipts); return err })
			}
			for range 200 {
				take()
			}
			if got["good"] != 1000 {
				t.Errorf("while nothing could be read of a key, %v were delivered", got)
			}
			store.prefix = nil // the disk works again
			w.Advance(2 * time.Second)
			for range 20 {
				take()
			}
			if dead := w.counts("q.dlq").Dead; got["bad"]+int(dead) != 100 {
				t.Errorf("%v were delivered, and %d are dead", got, dead)
			}
		})
	}
}

// A disk that cannot be read at all is not tried by each key separately.
func TestAnUnreadableDiskIsNotTriedByEachKey(t *testing.T) {
	store := &damaged{Memory: storage.NewMemory()}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), func(c *Config) { c.Window = 8 })
	w.queue("q", QueueOptions{})
	const keys = 200
	for i := range keys {
		w.fill(fmt.Sprint("k", i), 20, nil)
	}
	store.prefix = []byte{}
	for range keys {
		w.Do(&Task{Call: callFunc(func(tx *Tx) error {
			_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 8, Block: time.Nanosecond})
			return err
		})})
		w.Advance(time.Nanosecond)
	}
	most := 2 * w.core.cfg.ReadsMax
	if failed, _ := w.core.reads.Failing(); failed > most || failed == 0 {
		t.Errorf("%d reads have failed without a pause, want at most %d", failed, most)
	}
	store.prefix = nil
	w.Advance(3 * time.Second)
	if failed, resting := w.core.reads.Failing(); failed != 0 || resting > 0 {
		t.Errorf("%d reads failed at last, %d keys rest", failed, resting)
	}
}

// A damaged record of a leased message that must move to another queue is an error, and
// does not stop the engine.
func TestALeasedMessageWhoseRecordIsDamagedStaysLeased(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), func(c *Config) { c.LeaseWriteDelay = 0 })
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.MaxAttempts: 1}})
	w.enqueue("q", "k", "m")
	d := w.lease("q", 1)[0]
	var b storage.Batch
	b.Put(storage.Messages, d.Place.Append(nil), []byte{0xff})
	if err := store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	again := openWorld(t, store.Clone(), w.Now(), nil)
	if err := again.do(func(tx *Tx) error { _, err := tx.Nack(&Nack{Queue: "q", Receipt: d.Receipt, Dead: true}); return err }); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("nacked: %v", err)
	}
	again.Advance(time.Minute)
	if n := again.counts("q"); n.Leased != 1 {
		t.Errorf("got %+v", n)
	}
}
