package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// fillKeys enqueues a message for each of n fairness keys in one turn.
func (w *world) fillKeys(queue string, n int, throttles ...string) {
	w.t.Helper()
	tasks := make([]*Task, n)
	for i := range tasks {
		req := &Enqueue{Queue: queue, Key: fmt.Sprintf("k%d", i), Payload: []byte("m"), Meta: Meta{Throttles: throttles}}
		if err := w.Prepare(req); err != nil {
			w.t.Fatal(err)
		}
		tasks[i] = &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })}
	}
	w.Do(tasks...)
}

func purgeOf(queue string) *Task {
	return &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: queue}); return err })}
}

func deletionOf(queue string) *Task {
	return &Task{Call: callFunc(func(tx *Tx) error { return tx.DeleteQueue(queue, true) })}
}

func (w *world) sound() {
	w.t.Helper()
	if err := w.Check(); err != nil {
		w.t.Fatal(err)
	}
}

// What throttles have refused a key, and how long it has waited for them, outlives a purge, also while its class waits.
func TestAPurgeKeepsWhatThrottlesHaveDoneToAKey(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.queue("other", QueueOptions{}) // shares the throttle, so that keys are in a class that names it
	w.throttle("t", ThrottleOptions{Concurrency: new(uint64(1))})
	w.send(Enqueue{Queue: "other", Meta: Meta{Throttles: []string{"t"}}})
	put := func(key string) { w.send(Enqueue{Queue: "q", Key: key, Meta: Meta{Throttles: []string{"t"}}}) }
	put("a")
	put("a")
	w.lease("q", 1)
	w.lease("q", 1) // is refused: the class waits
	w.Advance(10 * time.Second)
	put("b") // joins the class while it waits
	w.Advance(time.Second)
	if a, b := w.key("q", "a"), w.key("q", "b"); a.Refused != 1 || a.Waited != 11*time.Second || b.Refused != 0 || b.Waited != time.Second {
		t.Fatalf("a was refused %d times and waited %v, b %d and %v", a.Refused, a.Waited, b.Refused, b.Waited)
	}
	w.Do(purgeOf("q"))
	put("a")
	put("b")
	if a, b := w.key("q", "a"), w.key("q", "b"); a.Refused != 1 || a.Waited != 11*time.Second || b.Refused != 0 || b.Waited != 0 {
		t.Errorf("after a purge a was refused %d times and waited %v, b, of which nothing is kept, %d and %v", a.Refused, a.Waited, b.Refused, b.Waited)
	}
	w.sound()
}

// A million keys in one turn would stall all clients for a third of a second.
func TestAPurgeReclaimsKeysInPortions(t *testing.T) {
	const keys = 5 * reclaimMax
	for name, task := range map[string]*Task{"purge": purgeOf("q"), "delete": deletionOf("q")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			w.queue("other", QueueOptions{})
			w.fillKeys("q", keys)
			c, all := w.core, 0
			for turn := 0; turn == 0 || c.tasks.unfinished; turn++ {
				var tasks []*Task
				if turn == 0 {
					tasks = append(tasks, task)
				}
				w.tick(tasks...)
				all += c.detached.reclaimed
				if c.detached.reclaimed > reclaimMax+1 {
					t.Fatalf("turn %d has gone through %d keys and messages", turn, c.detached.reclaimed)
				}
				if c.tasks.unfinished && c.nextTimer() != c.now {
					t.Fatal("the next turn does not follow at once")
				}
				if turn == 0 && task.err != nil {
					t.Fatal(task.err)
				}
				if c.heads.keys != 0 {
					t.Fatalf("%d keys are counted after turn %d", c.heads.keys, turn)
				}
				if turn%3 == 0 {
					w.sound()
				}
			}
			if all != 2*keys || c.heads.messages != 0 || len(c.detached.queues) != 0 {
				t.Errorf("of %d keys and as many messages %d were given back, %d messages are left in windows", keys, all, c.heads.messages)
			}
			w.enqueue("other", "k", "the body's time")
			w.Do()
			w.sound()
		})
	}
}

func TestAPurgedQueueIsEmptyAtOnceAndTakesTheSameKeys(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.core.detached.max = 1
	w.fillKeys("q", 50)
	first := w.lease("q", 3)
	w.tick(purgeOf("q"))
	counts := func() (c Counts) {
		t.Helper()
		w.tick(&Task{Call: callFunc(func(tx *Tx) (err error) {
			c, err = tx.QueueStats("q")
			if err != nil {
				return err
			}
			_, list, err := tx.Keys(&Keys{Queue: "q", Count: 100, Match: func(string) bool { return true }})
			if int64(len(list)) != c.Ready {
				t.Errorf("%d keys are listed, and %d messages are ready", len(list), c.Ready)
			}
			return err
		})})
		return c
	}
	if c := counts(); c.Ready != 0 || c.Leased != 0 || c.Purged != 50 {
		t.Errorf("after the purge: %+v", c)
	}
	w.tick(&Task{Call: callFunc(func(tx *Tx) error {
		if n, err := tx.Ack("q", []Receipt{first[0].Receipt}); n != 0 || err != nil {
			t.Errorf("a purged message was acked: %d, %v", n, err)
		}
		return nil
	})})
	if !w.core.tasks.unfinished {
		t.Fatal("50 keys in so few turns: the test is about those that are left")
	}
	w.fillKeys("q", 5)
	if c := counts(); c.Ready != 5 {
		t.Errorf("after five enqueues: %+v", c)
	}
	w.tick(purgeOf("q")) // a second purge, while the first one is being reclaimed
	w.fillKeys("q", 7)
	for w.core.tasks.unfinished {
		w.sound()
		w.tick()
	}
	if c := counts(); c.Ready != 7 || c.Purged != 55 {
		t.Errorf("at the end: %+v", c)
	}
	if ds := w.lease("q", 100); len(ds) != 7 {
		t.Errorf("%d messages were leased", len(ds))
	}
}

// busiest returns the deliveries and refusals of all keys.
func (w *world) busiest(queue string) (delivered, refused uint64) {
	w.t.Helper()
	w.tick(&Task{Call: callFunc(func(tx *Tx) error {
		top, rest, err := tx.BusiestKeys(queue)
		for _, b := range append(top, rest) {
			delivered += b.Delivered
			refused += b.Refused
		}
		return err
	})})
	return delivered, refused
}

// inUse returns how many leases a throttle counts.
func (w *world) inUse(throttle string) int64 {
	t, _ := w.core.order.Inside().Throttle(throttle)
	return t.InUse
}

// queueUp sets the throttle t with a concurrency of one, leases a message of a queue that
// uses it, and makes n keys of queue big wait for it before one key of queue other. It
// returns the delivery.
func (w *world) queueUp(n int) *Delivery {
	w.t.Helper()
	w.queue("big", QueueOptions{})
	w.queue("other", QueueOptions{})
	one := uint64(1)
	w.must(func(tx *Tx) error { return tx.SetThrottle("t", ThrottleOptions{Concurrency: &one}) })
	w.fillKeys("other", 1, "t")
	held := w.lease("other", 1)
	w.fillKeys("big", n, "t")
	w.lease("big", 1)
	w.fillKeys("other", 1, "t")
	w.lease("other", 1)
	if t, _ := w.core.order.Inside().Throttle("t"); t.Keys != int64(n)+1 {
		w.t.Fatalf("%d keys wait, the test needs %d", t.Keys, n+1)
	}
	return held[0]
}

func TestDetachedKeysLeaveTheLinesOfThrottles(t *testing.T) {
	w := newWorld(t, nil)
	held := w.queueUp(60)
	w.core.detached.max = 4
	var got []*Delivery
	w.tick(&Task{Call: callFunc(func(tx *Tx) (err error) {
		got, err = tx.Lease(&LeaseRequest{Queues: []string{"other"}, Count: 1, Block: time.Hour})
		return err
	})})
	_, before := w.busiest("big")
	w.Advance(time.Second)
	w.tick(purgeOf("big"), &Task{Call: callFunc(func(tx *Tx) error {
		_, err := tx.Ack("other", []Receipt{held.Receipt})
		return err
	})})
	if !w.core.tasks.unfinished {
		t.Fatal("the purge has ended in its turn: the test is about one that goes on")
	}
	if len(got) != 1 {
		t.Error("the key behind those of the purged queue was not admitted at once")
	}
	w.now = w.now.Add(time.Minute)
	for w.core.tasks.unfinished {
		w.sound()
		if _, now := w.busiest("big"); now != before {
			t.Fatalf("the keys of the purged queue were refused %d times, it was %d", now, before)
		}
		w.tick()
	}
	// The lease of the other queue's message has ended meanwhile: its key exists again.
	if th, _ := w.core.order.Inside().Throttle("t"); th.Keys != 1 || th.Waiting != 0 || th.Queues != 1 || th.Waited > int64(62*2*time.Second) {
		t.Errorf("%d keys of %d queues name it, %d wait, they have waited %v", th.Keys, th.Queues, th.Waiting, time.Duration(th.Waited))
	}
}

func TestAClassWhoseTurnItIsLeavesWithItsQueue(t *testing.T) {
	w := newWorld(t, nil)
	held := w.queueUp(20)
	w.core.detached.max = 1
	w.must(func(tx *Tx) error { _, err := tx.Ack("other", []Receipt{held.Receipt}); return err })
	eligible := func() int {
		t, _ := w.core.order.Inside().Throttle("t")
		return t.Opened
	}
	if n := eligible(); n != 2 {
		t.Fatalf("%d queues have a class open, the test needs both", n)
	}
	w.tick(deletionOf("big"))
	for w.core.tasks.unfinished {
		w.sound()
		w.tick()
	}
	if ds := w.lease("other", 1); len(ds) != 1 {
		t.Error("the other queue cannot use the place")
	}
	if th, _ := w.core.order.Inside().Throttle("t"); th.Keys != 0 || th.Queues != 1 {
		t.Errorf("%d keys of %d queues name the throttle", th.Keys, th.Queues)
	}
}

func TestDetachedKeysLeaveTheQueueOfReads(t *testing.T) {
	const keys = 30
	w := newWorld(t, func(c *Config) { c.Window, c.ReadsMax = 2, 1 })
	w.queue("big", QueueOptions{})
	w.queue("other", QueueOptions{})
	for range 3 { // one more than a head cache holds
		w.fillKeys("big", keys)
		w.fillKeys("other", 1)
	}
	c := w.core
	c.detached.max, c.reads.PausedTo = 1, c.now+int64(time.Hour)
	if a, b := len(w.lease("big", 2*keys)), len(w.lease("other", 2)); a != 2*keys || b != 2 || urgentReads(c) != keys+1 {
		t.Fatalf("%d and %d leased, %d keys want a read", a, b, urgentReads(c))
	}
	w.tick(purgeOf("big"))
	c.reads.PausedTo = 0
	for turn := 0; turn == 0 || c.tasks.unfinished; turn++ {
		before := urgentReads(c)
		w.tick()
		w.sound()
		if passed := before - urgentReads(c); passed > 2 {
			t.Fatalf("turn %d has passed over %d keys of the purged queue", turn, passed)
		}
	}
	if ds := w.lease("other", 1); len(ds) != 1 {
		t.Error("the key behind those of the purged queue was not read")
	}
}

func TestAFailedCommitForgetsDetachedKeys(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.fillKeys("q", 30)
	w.core.detached.max = 1
	store.FailCommits(errors.New("the disk is full"))
	w.tick(purgeOf("q"))
	if !w.core.tasks.unfinished {
		t.Fatal("the purge has ended in its turn: the test is about one that goes on")
	}
	w.tick() // its commit fails
	w.sound()
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	w.sound()
	if ds := w.lease("q", 100); len(ds) != 30 {
		t.Errorf("%d of 30 messages are there after a purge that has failed", len(ds))
	}
}

// Leases, delayed messages and expiries of a purged queue are reclaimed in portions, too,
// in spite of those of other queues, and its receipts are invalid at once.
func TestAPurgeReclaimsLeasesInPortions(t *testing.T) {
	const n = 2 * reclaimMax
	for name, task := range map[string]*Task{"purge": purgeOf("q"), "delete": deletionOf("q")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			w.queue("other", QueueOptions{})
			w.must(func(tx *Tx) error { return tx.SetThrottle("t", ThrottleOptions{Concurrency: new(uint64(2 * n))}) })
			for i := range n {
				for _, req := range []*Enqueue{
					{Queue: "q", Key: fmt.Sprintf("k%d", i%3), Meta: Meta{Throttles: []string{"t"}}, TTL: time.Hour}, {Queue: "q", Key: "late", Delay: time.Hour},
				} {
					if err := w.Prepare(req); err != nil {
						t.Fatal(err)
					}
					w.turn([]*Task{{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })}})
				}
			}
			w.Do()
			w.enqueue("other", "k", "stays")
			kept := w.lease("other", 1)
			receipts := w.leaseAll()
			if len(receipts) != n {
				t.Fatalf("%d are leased, want %d", len(receipts), n)
			}
			c := w.core
			for turn := 0; turn == 0 || c.tasks.unfinished; turn++ {
				var tasks []*Task
				if turn == 0 {
					tasks = []*Task{task}
				} else if turn == 1 && name == "purge" {
					if len(c.leases.byID) < 2 {
						t.Fatal("the leases have ended in one turn: the test is about those that are left")
					}
					tasks = []*Task{{Call: callFunc(func(tx *Tx) error {
						got, err := tx.Ack("q", receipts)
						if got != 0 {
							t.Errorf("%d messages of an emptied queue were acked", got)
						}
						return err
					})}}
				}
				w.tick(tasks...)
				if c.detached.reclaimed > reclaimMax+1 {
					t.Fatalf("turn %d has given back %d things", turn, c.detached.reclaimed)
				}
				w.sound()
			}
			if len(c.leases.byID) != 1 || w.inUse("t") != 0 || c.delayed.index.Len()+c.ttl.index.Len() != 0 {
				t.Errorf("%d leases are left, %d places in the throttle, %d delayed, %d ends", len(c.leases.byID), w.inUse("t"), c.delayed.index.Len(), c.ttl.index.Len())
			}
			w.must(func(tx *Tx) error {
				if got, err := tx.Ack("other", []Receipt{kept[0].Receipt}); got != 1 || err != nil {
					t.Errorf("the message of another queue: %d, %v", got, err)
				}
				return nil
			})
		})
	}
}

// The statistics of few keys stay available by name, also if a key of that name returns
// before reclaim has reached the former one.
func TestStatisticsOfDetachedKeysAreKeptByName(t *testing.T) {
	for _, back := range []bool{false, true} {
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{})
		w.fill("k", 20, nil)
		w.lease("q", 10)
		w.core.detached.max = 3
		w.tick(purgeOf("q"))
		if !w.core.tasks.unfinished {
			t.Fatal("the queue was swept in one turn: the test is about a key that is left")
		}
		if back {
			w.enqueue("q", "k", "new")
			w.lease("q", 1)
		}
		for w.core.tasks.unfinished {
			w.tick()
			w.sound()
		}
		want := uint64(10)
		if back {
			want++
		}
		w.must(func(tx *Tx) error {
			i, err := tx.Key("q", "k")
			if i.Delivered != want {
				t.Errorf("%d deliveries of the key are known, want %d", i.Delivered, want)
			}
			return err
		})
	}
}

// urgentReads returns how many keys want a read first.
func urgentReads(c *core) int {
	_, urgent := c.reads.Waiting()
	return urgent
}
