package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Consumers wait without a timeout while everything happens that may stop a message or admit
// it: pauses of queues and keys, purges, cancelled and rescheduled messages, throttles that are
// set and deleted, clients that disconnect, disks that fail. Two things must hold:
//
//   - such a wait ends with a message, with its connection, or with a failed commit
//   - when no work is in progress, no message waits that a waiting consumer may have

// waitingRoom is one run.
type waitingRoom struct {
	*world
	store   *storage.Memory
	r       *rand.Rand
	units   int
	waits   []*endlessWait
	held    []*Delivery
	ids     [2][]ID
	nextID  uint64
	failing bool

	served, failed int // waits that ended with messages, or with a failed commit
	met            map[KeyState]int
}

// endlessWait is a lease with BLOCK 0.
type endlessWait struct {
	task   *Task
	client *Client
	queues []string
	got    []*Delivery
	gone   bool
}

func newWaitingRoom(t *testing.T, seed uint64) *waitingRoom {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // reproducible on purpose
	h := &waitingRoom{r: r, store: storage.NewMemory(), units: []int{1, 4, 64, turnUnits}[r.IntN(4)], met: map[KeyState]int{}}
	h.world = openWorld(t, h.store, time.Unix(1_700_000_000, 0), func(c *Config) {
		c.Seed, c.Window, c.WindowTotal, c.ReadsMax, c.BodyBytes = seed, 2+r.IntN(4), 5+r.IntN(8), 1+r.IntN(3), int64(r.IntN(200))
	})
	for _, name := range []string{"a", "b"} {
		h.queue(name, QueueOptions{Given: queueset.Given{queueset.MaxAttempts: 0}, NoDLQ: true})
	}
	h.core.tasks.budget.Turn = h.units
	if r.IntN(2) == 0 {
		h.Lazy = func() bool { return r.IntN(3) == 0 }
	}
	return h
}

func (h *waitingRoom) pickQueue() (int, string) {
	i := h.r.IntN(2)
	return i, []string{"a", "b"}[i]
}

func (h *waitingRoom) pickKey() string { return fmt.Sprint("k", h.r.IntN(4)) }

// call runs a call, which may take several turns.
func (h *waitingRoom) call(apply func(tx *Tx) error) {
	h.Do(&Task{Call: callFunc(apply)})
}

// wait has a new client wait for messages without a timeout.
func (h *waitingRoom) wait() {
	h.nextID++
	w := &endlessWait{client: NewClient(h.nextID, func() {}), queues: []string{"a", "b"}}
	if h.r.IntN(4) > 0 {
		_, name := h.pickQueue()
		w.queues = []string{name}
	}
	req := &LeaseRequest{Queues: w.queues, Count: 1 + h.r.IntN(3), Visibility: time.Duration(1+h.r.IntN(20)) * time.Second}
	w.task = &Task{Client: w.client, Call: callFunc(func(tx *Tx) (err error) { w.got, err = tx.Lease(req); return err })}
	h.waits = append(h.waits, w)
	h.Do(w.task)
}

func (h *waitingRoom) enqueue() {
	i, name := h.pickQueue()
	req := &Enqueue{Queue: name, Key: h.pickKey(), Payload: make([]byte, h.r.IntN(50)), Meta: Meta{Throttles: [][]string{nil, {"t"}, {"u"}, {"t", "u"}}[h.r.IntN(4)]}}
	if h.r.IntN(4) == 0 {
		req.Delay = time.Duration(1+h.r.IntN(5)) * time.Second
	}
	if h.r.IntN(6) == 0 {
		req.TTL = req.Delay + time.Duration(1+h.r.IntN(20))*time.Second
	}
	if err := h.Prepare(req); err != nil {
		h.t.Fatal(err)
	}
	h.call(func(tx *Tx) error {
		id, err := tx.Enqueue(req)
		if err == nil {
			h.ids[i] = append(h.ids[i], id)
		}
		return err
	})
}

// answer ends one of the leases.
func (h *waitingRoom) answer() {
	if len(h.held) == 0 {
		return
	}
	i := h.r.IntN(len(h.held))
	d := h.held[i]
	h.held = slices.Delete(h.held, i, i+1)
	how := h.r.IntN(5)
	h.call(func(tx *Tx) (err error) {
		switch how {
		case 0:
			_, err = tx.Nack(&Nack{Queue: d.Queue, Receipt: d.Receipt, Delay: time.Second})
		case 1:
			_, err = tx.Release(d.Queue, []Receipt{d.Receipt})
		case 2:
			err = tx.Undeliver([]*Delivery{d})
		default:
			_, err = tx.Ack(d.Queue, []Receipt{d.Receipt})
		}
		return err
	})
}

// vanish disconnects a waiting client.
func (h *waitingRoom) vanish() {
	if len(h.waits) == 0 {
		return
	}
	w := h.waits[h.r.IntN(len(h.waits))]
	w.gone = true
	h.Leave(w.client)
	h.Do()
}

// change is an operation of an operator.
func (h *waitingRoom) change() {
	i, name := h.pickQueue()
	key, paused, throttle := h.pickKey(), h.r.IntN(2) == 0, []string{"t", "u"}[h.r.IntN(2)]
	var id ID
	if n := len(h.ids[i]); n > 0 {
		id = h.ids[i][max(n-1-h.r.IntN(10), 0)]
	}
	set := ThrottleOptions{Concurrency: new(uint64(1 + h.r.IntN(2)))}
	if h.r.IntN(2) == 0 {
		set = ThrottleOptions{Rate: new(0.5 + h.r.Float64()), Burst: new(uint64(1 + h.r.IntN(3)))}
	}
	switch h.r.IntN(10) {
	case 0, 1:
		h.call(func(tx *Tx) error { return tx.Pause(name, h.r.IntN(8) == 0 && paused, true, paused) })
	case 2, 3:
		h.call(func(tx *Tx) error { return tx.PauseKey(name, key, paused) })
	case 4:
		req := &Purge{Queue: name}
		h.call(func(tx *Tx) error { _, err := tx.Purge(req); return err })
	case 5:
		req := &Purge{Queue: name, Key: key}
		h.call(func(tx *Tx) error { _, err := tx.Purge(req); return err })
	case 6:
		req := &Cancel{Queue: name, IDs: []ID{id}}
		h.call(func(tx *Tx) error { _, err := tx.Cancel(req); return err })
	case 7:
		req := &Reschedule{Queue: name, ID: id, Delay: time.Duration(h.r.IntN(3)) * time.Second}
		h.call(func(tx *Tx) error { _, err := tx.Reschedule(req); return err })
	case 8:
		h.call(func(tx *Tx) error { return tx.SetThrottle(throttle, set) })
	case 9:
		h.call(func(tx *Tx) error { _, err := tx.DeleteThrottle(throttle); return err })
	}
}

func (h *waitingRoom) disk() {
	if !h.failing {
		h.store.FailCommits(errors.New("no space left"))
	} else if h.store.FailCommits(nil); h.core.health.failed != nil { // a commit has failed
		if err := h.Repair(); err != nil {
			h.t.Fatal(err)
		}
	}
	h.failing = !h.failing
}

// judge checks the waits that have ended.
func (h *waitingRoom) judge() {
	h.waits = slices.DeleteFunc(h.waits, func(w *endlessWait) bool {
		if !w.task.Done() {
			return false
		}
		switch err := w.task.Err(); {
		case err == nil && len(w.got) > 0:
			h.served++
			h.held = append(h.held, w.got...)
		case errors.Is(err, ErrMisconf):
			h.failed++
		case w.gone && errors.Is(err, ErrClientGone):
		default:
			h.t.Errorf("a wait of client %d without end has ended with %d messages and the error %v", w.client.ID, len(w.got), err)
		}
		return true
	})
}

// quiet runs turns until no work is in progress, and checks which messages wait then.
func (h *waitingRoom) quiet() {
	lazy := h.Lazy
	h.Lazy = nil
	h.Do()
	h.Advance(0)
	h.judge()
	h.sound()
	for _, name := range []string{"a", "b"} {
		waits := slices.ContainsFunc(h.waits, func(w *endlessWait) bool { return slices.Contains(w.queues, name) })
		for i := range 4 {
			var x Explanation
			req := &ExplainKey{Queue: name, Key: fmt.Sprint("k", i)}
			h.must(func(tx *Tx) (err error) { x, err = tx.ExplainKey(req); return err })
			h.met[x.State]++
			if (x.State == KeyBusy || x.State == KeyNoConsumer || x.State == KeyReady || x.State == KeyLoading) && waits {
				h.t.Errorf("key %s of %s is in the state %q (%s), and a consumer waits for it", x.Key, name, x.State, x.Reason)
			}
		}
	}
	h.Lazy = lazy
}

func (h *waitingRoom) once() {
	switch n := h.r.IntN(20); {
	case n < 5:
		h.enqueue()
	case n < 9:
		h.wait()
	case n < 12:
		h.answer()
	case n < 15:
		h.change()
	case n == 15:
		h.vanish()
	case n == 16:
		if h.failing || h.r.IntN(8) == 0 {
			h.disk()
		}
	default:
		h.Advance(time.Duration(h.r.IntN(2000)) * time.Millisecond)
	}
	h.judge()
	if !h.failing && h.r.IntN(4) == 0 {
		h.quiet()
	}
}

// A consumer may be served while it asks: its own request reveals that a throttle has room for
// another message of its queue. The messages that it gets then are its reply.
//
// Two classes of messages wait for throttle t, and the one that also needs u is first. When t
// gets room, the queue is paused, so the classes are left for the next consumer that asks. When
// the queue is resumed, u is full, and t is free for the other class.
func TestAConsumerThatIsServedWhileItAsksKeepsWhatItGot(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"t", "u"} {
		w.throttle(name, ThrottleOptions{Concurrency: new(uint64(1))})
	}
	for _, name := range []string{"q", "other"} {
		w.queue(name, QueueOptions{NoDLQ: true})
	}
	w.fillKeys("other", 1, "t")
	ofT := w.lease("other", 1)
	put := func(key string, throttles ...string) {
		req := &Enqueue{Queue: "q", Key: key, Payload: []byte(key), Meta: Meta{Throttles: throttles}}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	}
	put("both", "t", "u")
	put("one", "t")
	var got, late []*Delivery
	first := w.start(func(tx *Tx) (err error) {
		got, err = tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0, Visibility: time.Hour})
		return err
	})
	second := w.start(func(tx *Tx) (err error) {
		late, err = tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0, Visibility: time.Hour})
		return err
	})
	w.must(func(tx *Tx) error { return tx.Pause("q", false, true, true) })
	w.must(func(tx *Tx) error { _, err := tx.Ack("other", []Receipt{ofT[0].Receipt}); return err })
	w.fillKeys("other", 1, "u")
	ofU := w.lease("other", 1)
	w.must(func(tx *Tx) error { return tx.Pause("q", false, true, false) })
	if !first.Done() || len(got) != 1 || got[0].Key != "one" {
		t.Fatalf("the queue is resumed, and the first consumer has got %d messages, done %v", len(got), first.Done())
	}
	w.sound()
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{got[0].Receipt}); return err })
	w.must(func(tx *Tx) error { _, err := tx.Ack("other", []Receipt{ofU[0].Receipt}); return err })
	if !second.Done() || len(late) != 1 || late[0].Key != "both" {
		t.Errorf("both throttles are free, and the second consumer has got %d messages, done %v", len(late), second.Done())
	}
}

func TestAnUnboundedWaitEndsWithAMessage(t *testing.T) {
	seeds, steps := max(100, *schedSetUps), 300
	if testing.Short() {
		seeds = 30
	}
	served, failed, met := 0, 0, map[KeyState]int{}
	for seed := *simFirst; seed < *simFirst+uint64(seeds) && !t.Failed(); seed++ {
		h := newWaitingRoom(t, seed)
		for range steps {
			if h.once(); t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		served, failed = served+h.served, failed+h.failed
		for state, n := range h.met {
			met[state] += n
		}
	}
	t.Logf("%d waits ended with messages, %d with a failed commit; keys were %v", served, failed, met)
	for _, state := range []KeyState{KeyBusy, KeyNoConsumer, KeyThrottled, KeyConcurrency, KeyPaused, KeyLeased, KeyDelayed, KeyEmpty} {
		if met[state] == 0 {
			t.Errorf("no key was ever in the state %q", state)
		}
	}
	if served == 0 || failed == 0 {
		t.Error("waits should have ended in both ways")
	}
}
