package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// The scheduler as its clients see it. A schedSim drives an engine event by event: workers
// lease, work for some time, and ack; keys get new messages; the time advances to the next
// event of the workers or the next timer of the engine. The simulation keeps records of its
// own, derived from what the engine answers (sched_books_test.go), and looks at no structure of
// the scheduler.
//
// After every event, the records must show that no slot and no token is left unused that a
// waiting message could use (sched_check_test.go).

type schedSim struct {
	step      *Stepper
	rng       *rand.Rand
	queues    []*schedQueue
	throttles []*schedThrottle
	budgets   []*schedBudget
	workers   []*schedWorker
	messages  map[ID]*schedMessage
	events    intrusive.Heap[*schedEvent]
	timed     intrusive.Heap[*schedEvent] // ends of delays and leases
	ordered   uint64
	woken     []*schedWorker
	asked     []*schedWorker // workers whose leases in this Do got fewer messages than they asked for, at once
	now       int64
	seq       uint64 // of messages, in the order of their ids
	moment    int    // the last delivery or cut, in their order
	quantum   float64
	slack     float64              // added to the bound of all pairs of keys
	work      func() time.Duration // duration of the work on the next message
	provider  *schedProvider       // does the work instead, if there is one

	deliveries int
	dos        int
	faults     []string
	onDisk     bool // all but two messages of each key are on disk only
	holds      bool // nacks hold throttles
	settles    bool // leases say what was used of throttles by cost
	patterns   bool // limits come from patterns as well as from settings of their own
	quiet      bool // no checks after events: a set-up is being built
	cut        int  // batches that had fewer messages than throttles and budgets admit
	relaxed    bool // broken rules of fairness are counted instead of failing the test
	broken     int  // events after which a message waited that could be delivered
	apart      int  // times that two keys of a class were further apart than the bound
	reds       []string
	onDeliver  func(*schedMessage)
	widest     float64 // widest range of a pair of keys, as a fraction of the bound
}

// schedMessage is a message as its producer and its worker know it.
type schedMessage struct {
	key     *schedKey
	class   *schedClass
	id      ID
	seq     uint64
	rank    uint8
	cost    uint32
	charge  int64
	budgets []*schedBudget
	state   schedState
	at      int64 // due time, or the end of its lease
	since   int64 // ready since
	sent    int64 // time of its enqueue
	tries   int   // deliveries
	began   int   // moment of its delivery
	took    []int // of each throttle of its class, by cost: the life in which it has taken its cost
	refused bool  // by the provider
	receipt Receipt
}

type schedState uint8

const (
	schedReady schedState = iota
	schedDelayed
	schedLeased
	schedGone
)

// before is the order in which a key delivers.
func (m *schedMessage) before(o *schedMessage) int {
	return cmp.Or(cmp.Compare(m.rank, o.rank), cmp.Compare(m.seq, o.seq))
}

// schedEvent is an action of the set-up at a time, or the end of a message's state at a time.
// The latter is void if the message has left that state before.
type schedEvent struct {
	at    int64
	order uint64 // among events of the same time
	do    func()
	m     *schedMessage
	state schedState
	i     int
}

func (e *schedEvent) Before(o *schedEvent) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
}
func (e *schedEvent) Index() *int { return &e.i }

const schedStart = 1_700_000_000

func newSchedSim(seed uint64, change func(*Config)) *schedSim {
	cfg := DefaultConfig()
	cfg.LeaseWriteDelay = 1000 * time.Hour // no lease record is written
	cfg.Seed = seed
	if change != nil {
		change(&cfg)
	}
	rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // reproducible on purpose
	s := &schedSim{rng: rng, messages: map[ID]*schedMessage{}, quantum: float64(cfg.Quantum)}
	s.work = func() time.Duration { return time.Duration(s.rng.ExpFloat64() * 1e9) }
	step, err := NewStepper(cfg, storage.NewMemory(), time.Unix(schedStart, 0))
	if err != nil {
		panic(err)
	}
	s.step, s.now = step, step.Now().UnixNano()
	return s
}

// seconds since the start.
func (s *schedSim) seconds() float64 { return float64(s.now-schedStart*1e9) / 1e9 }

func (s *schedSim) fault(format string, args ...any) {
	const most = 20
	if len(s.faults) < most {
		s.faults = append(s.faults, fmt.Sprintf("at %.3f s: ", s.seconds())+fmt.Sprintf(format, args...))
	}
}

// unfair reports a broken rule of fairness: a fault unless the simulation is relaxed.
func (s *schedSim) unfair(count *int, format string, args ...any) {
	*count++
	if !s.relaxed {
		s.fault(format, args...)
		return
	}
	if len(s.reds) < 3 {
		s.reds = append(s.reds, fmt.Sprintf("at %.3f s: ", s.seconds())+fmt.Sprintf(format, args...))
	}
}

// after schedules an event.
func (s *schedSim) after(d time.Duration, do func()) {
	s.ordered++
	s.events.Push(&schedEvent{at: s.now + int64(max(d, 0)), order: s.ordered, do: do})
}

// run advances the time by d, event by event, or until enough returns true.
func (s *schedSim) run(d time.Duration, enough func() bool) {
	end := s.now + int64(d)
	for s.now < end && len(s.faults) == 0 && (enough == nil || !enough()) {
		at := end
		if e, ok := s.events.First(); ok {
			at = min(at, e.at)
		}
		if t := s.step.core.nextTimer(); t > 0 {
			at = min(at, max(t, s.now))
		}
		at = min(at, s.nextToken())
		s.moveTo(at)
		for len(s.faults) == 0 {
			e, ok := s.events.First()
			if !ok || e.at > s.now {
				break
			}
			s.events.Remove(e)
			e.do()
		}
	}
}

// moveTo advances the time. Only the timers of the engine act.
func (s *schedSim) moveTo(at int64) {
	s.account(at)
	d := at - s.now
	for _, q := range s.queues {
		if q.waiting > 0 {
			q.awaited += d
		}
	}
	for _, t := range s.throttles {
		t.holdEnds(at)
	}
	s.now = at
	s.step.Advance(time.Duration(d))
	s.settled()
}

// do runs tasks in one turn, and further turns that follow without an advance of time.
func (s *schedSim) do(tasks ...*Task) {
	s.dos++
	s.step.Do(tasks...)
	if at := s.step.core.nextTimer(); at != 0 && at <= s.now { // the turn has left work for the next one
		s.step.Advance(0)
	}
	s.settled()
}

// settled follows every turn. Workers that have got messages begin to work, and no message may
// wait that could be delivered.
func (s *schedSim) settled() {
	s.promote()
	if !s.quiet {
		s.check()
	}
	s.asked = s.asked[:0]
	woken := s.woken
	s.woken = nil
	for _, w := range woken {
		w.answered()
	}
}

// call runs a call to its end and records it in the turn in which it is applied.
func (s *schedSim) call(apply func(tx *Tx) error) {
	task := &Task{Call: callFunc(apply)}
	s.do(task)
	if !task.Done() {
		s.fault("a call waits")
	} else if task.Err() != nil {
		s.fault("a call is refused: %v", task.Err())
	}
}

// schedQueue is a queue.
type schedQueue struct {
	sim     *schedSim
	name    string
	keys    []*schedKey
	classes []*schedClass
	waiting int   // workers that wait for it
	awaited int64 // nanoseconds in which there was at least one
	paused  bool
	got     int // messages delivered

	batch int   // of a key; 0: keys do not gather
	wait  int64 // nanoseconds
}

func (s *schedSim) queue() *schedQueue {
	q := &schedQueue{sim: s, name: fmt.Sprint("q", len(s.queues))}
	s.queues = append(s.queues, q)
	s.call(func(tx *Tx) error {
		return tx.CreateQueue(q.name, QueueOptions{Given: queueset.Given{queueset.MaxAttempts: 0, queueset.Visibility: millis(1000 * time.Hour)}, NoDLQ: true})
	})
	return q
}

func (q *schedQueue) pause(paused bool) {
	q.sim.call(func(tx *Tx) error {
		q.paused = paused
		return tx.Pause(q.name, false, true, paused)
	})
}

// schedThrottle is a throttle with its own record of the bucket and of the leases in use.
type schedThrottle struct {
	sim         *schedSim
	name        string
	settings    []string // the names under which it is set in turn: patterns and its own; empty: its own
	sets        int      // how often it was set
	rate, burst float64  // 0: no limit
	conc        int      // 0: no limit
	adaptive    *schedLimit
	byCost      bool // a message takes its cost in tokens
	life        int  // incremented when it gets or loses its setting
	tokens      float64
	at          int64
	held        int
	shared      bool // messages with several throttles name it
	heldUntil   int64

	passed   int     // messages, or the tokens that they took
	used     float64 // slots x seconds, or tokens
	lost     float64 // the same, of capacity that a message could have used
	idle     int     // slots or tokens being lost now
	idleAt   int64   // since when, without a delivery of a message with several throttles
	idleMost int64   // the longest such time
}

func (s *schedSim) throttle(rate, burst float64, conc int) *schedThrottle {
	return s.throttleOf(rate, burst, conc, false)
}

func (s *schedSim) throttleByCost(rate, burst float64, conc int) *schedThrottle {
	return s.throttleOf(rate, burst, conc, true)
}

func (s *schedSim) throttleOf(rate, burst float64, conc int, byCost bool) *schedThrottle {
	t := s.newThrottle()
	t.byCost, t.tokens, t.burst = byCost, burst, burst
	t.set(rate, burst, conc)
	return t
}

// newThrottle returns a throttle without a setting.
func (s *schedSim) newThrottle() *schedThrottle {
	t := &schedThrottle{sim: s, name: string(rune('A' + len(s.throttles))), at: s.now}
	if len(s.throttles) >= 26 {
		t.name = fmt.Sprint("T", len(s.throttles))
	}
	if s.patterns {
		t.settings = []string{t.name + ":*", t.name + ":x", t.name + ":x*"}
		t.name = t.settings[1]
	}
	s.throttles = append(s.throttles, t)
	return t
}

func (t *schedThrottle) set(rate, burst float64, conc int) {
	var o ThrottleOptions
	if rate > 0 {
		o.Rate, o.Burst, o.ByCost = new(rate), new(uint64(burst)), t.byCost
	}
	if conc > 0 {
		o.Concurrency = new(uint64(conc))
	}
	if t.adaptive != nil && conc > 0 {
		o.Adaptive, o.Min = true, new(uint64(min(t.adaptive.least, conc)))
	}
	t.sim.call(func(tx *Tx) error {
		t.tokens, t.at = min(t.inBucket(t.sim.now), burst), t.sim.now
		if t.rate == 0 {
			t.tokens = burst
		}
		if t.rate == 0 && t.conc == 0 {
			t.moves()
			t.life++
		}
		t.rate, t.burst, t.conc = rate, burst, conc
		t.adaptive.set(conc)
		name := t.name
		if n := len(t.settings); n > 0 {
			name = t.settings[t.sets%n]
			t.sets++
		}
		if err := tx.SetThrottle(name, o); err != nil {
			return err
		}
		for _, other := range t.settings { // those of less weight may stay
			if len(other) > len(name) || other == t.name && name != t.name {
				if _, err := tx.DeleteThrottle(other); err != nil {
					return err
				}
			}
		}
		if name == t.name && len(t.settings) > 0 {
			return tx.SetThrottle(t.name, o) // the pattern with a longer prefix is gone, and does not matter
		}
		return nil
	})
}

// remove deletes the setting of the throttle, which limits nothing until it is set again.
func (t *schedThrottle) remove() {
	t.sim.call(func(tx *Tx) error {
		t.moves()
		t.life++
		t.rate, t.conc = 0, 0
		t.adaptive.set(0)
		for _, name := range append(t.settings, t.name) {
			if _, err := tx.DeleteThrottle(name); err != nil {
				return err
			}
		}
		return nil
	})
}

// moves prepares for a throttle that is set or deleted. Its keys move to another class with
// their credit, and within a round they may be in a different order there. Of two keys that
// have both been visited in a round, the second may therefore be visited again before the
// first, twice in a row. The comparison of the two restarts here, with one more visit of slack.
// It must precede the change, because deliveries follow in the same turn of the engine.
func (t *schedThrottle) moves() {
	for _, q := range t.sim.queues {
		for _, c := range q.classes {
			if slices.Contains(c.throttles, t) {
				clear(c.spans)
				for _, k := range c.keys {
					k.slack = max(k.slack, t.sim.quantum)
				}
			}
		}
	}
}

// schedKey is a fairness key and what it has.
type schedKey struct {
	queue    *schedQueue
	no       int
	name     string
	weight   uint32
	class    *schedClass // class of its messages; nil: its messages are of several classes
	ready    []*schedMessage
	paused   bool
	got      int     // messages delivered
	cost     int64   // delivered
	slack    float64 // added to the bound, after a change of its settings
	heaviest uint32  // greatest weight so far
	gather   schedGather

	costs func() uint32 // cost of the next message
	slow  float64       // factor by which work takes longer; 0: 1
	keep  int           // number of ready messages to maintain; 0: none are enqueued
	sets  [][]*schedThrottle

	budgets []*schedBudget // pay for its messages
	charges func() int64   // charge of the next message
}

func (q *schedQueue) key(weight uint32, ts ...*schedThrottle) *schedKey {
	k := &schedKey{queue: q, no: len(q.keys), name: fmt.Sprint("k", len(q.keys)), weight: weight, sets: [][]*schedThrottle{ts}}
	k.costs = func() uint32 { return 1 }
	k.class = q.class(ts)
	k.class.keys = append(k.class.keys, k)
	q.keys = append(q.keys, k)
	return k
}

// endless adds a key that always has n ready messages.
func (q *schedQueue) endless(n int, weight uint32, cost uint32, ts ...*schedThrottle) *schedKey {
	k := q.key(weight, ts...)
	k.costs, k.keep = func() uint32 { return cost }, n
	k.refill()
	return k
}

// put enqueues a message of a key.
func (k *schedKey) put(cost uint32, priority uint8, delay time.Duration) *schedMessage {
	q, ts := k.queue, k.sets[0]
	s := q.sim
	if len(k.sets) > 1 {
		ts = k.sets[s.rng.IntN(len(k.sets))]
	}
	m := &schedMessage{key: k, class: q.class(ts), rank: storage.PriorityMax - priority, cost: cost}
	if len(k.budgets) > 0 {
		m.budgets, m.charge = k.budgets, k.charges()
	}
	req := &Enqueue{Queue: q.name, Key: k.name, Meta: Meta{Weight: k.weight, Cost: cost, Throttles: m.class.names}, Priority: &priority, Delay: delay, Payload: []byte("x")}
	for _, b := range m.budgets {
		req.Budgets, req.Charge = append(req.Budgets, b.name), &m.charge
	}
	if err := s.step.Prepare(req); err != nil {
		s.fault("prepare: %v", err)
		return m
	}
	s.call(func(tx *Tx) (err error) {
		if m.id, err = tx.Enqueue(req); err != nil {
			return err
		}
		s.enqueued(m, delay)
		return nil
	})
	return m
}

// refill enqueues messages until the key has as many as it always has.
func (k *schedKey) refill() {
	for len(k.ready) < k.keep && len(k.queue.sim.faults) == 0 {
		k.put(k.costs(), 4, 0)
	}
}

// schedClass is a queue and a throttle set: its keys share by weight what the throttles admit.
type schedClass struct {
	queue     *schedQueue
	names     []string
	throttles []*schedThrottle
	keys      []*schedKey
	spans     map[[2]*schedKey]*span
	costMax   float64
	ahead     float64 // the most that the messages of a batch cost behind the first
	budgets   bool    // pay for messages of some keys
	got       int
	cost      int64       // delivered
	sure      schedWeight // set by weigh: of keys that can deliver if throttles have room
	most      schedWeight // and of those that perhaps can
	expect    []float64   // for each throttle, the messages of a fair division, or the tokens
}

func (q *schedQueue) class(ts []*schedThrottle) *schedClass {
	for _, c := range q.classes {
		if slices.Equal(c.throttles, ts) {
			return c
		}
	}
	c := &schedClass{queue: q, throttles: slices.Clone(ts), spans: map[[2]*schedKey]*span{}, costMax: 1, expect: make([]float64, len(ts))}
	for _, t := range ts {
		c.names = append(c.names, t.name)
		t.shared = t.shared || len(ts) > 1
	}
	q.classes = append(q.classes, c)
	return c
}

func (c *schedClass) String() string { return fmt.Sprintf("%s%v", c.queue.name, c.names) }

// schedWorker is a client that leases, works and acks.
type schedWorker struct {
	sim    *schedSim
	queues []*schedQueue
	client *Client
	task   *Task
	parked bool // its lease waits
	got    []*schedMessage
	left   int // messages in work

	count  int
	same   bool          // all messages of a lease are of one key
	block  time.Duration // as in LeaseRequest; negative: poll
	every  time.Duration // between two polls
	factor float64       // of the work of a message: 5 is slow
	lazy   bool          // acks and leases in two calls; else in one
	lapse  time.Duration // visibility timeout of its leases; 0: unbounded
	fail   float64       // probability of a nack
	away   bool
	life   int // incremented by a crash: messages in work before it are not acked
	done   int
}

func (s *schedSim) worker(qs ...*schedQueue) *schedWorker {
	w := &schedWorker{sim: s, queues: qs, count: 1, factor: 1}
	w.connect()
	s.workers = append(s.workers, w)
	return w
}

// crew starts n identical workers.
func (s *schedSim) crew(n int, qs ...*schedQueue) []*schedWorker {
	ws := make([]*schedWorker, n)
	for i := range ws {
		ws[i] = s.worker(qs...)
		w := ws[i]
		s.after(0, w.lease)
	}
	return ws
}

func (w *schedWorker) connect() {
	s := w.sim
	s.ordered++
	w.client = NewClient(s.ordered, func() { s.woken = append(s.woken, w) })
}

func (w *schedWorker) park(parked bool) {
	if w.parked == parked {
		return
	}
	w.parked = parked
	n := 1
	if !parked {
		n = -1
	}
	for _, q := range w.queues {
		q.waiting += n
	}
}

// lease asks for messages, after the other calls that the worker sends with it.
func (w *schedWorker) lease() { w.leaseWith(nil) }

func (w *schedWorker) leaseWith(before []*Task) {
	s := w.sim
	if w.away || w.task != nil {
		if len(before) > 0 {
			s.do(before...)
		}
		return
	}
	req := &LeaseRequest{Count: w.count, SameKey: w.same, Block: w.block, Visibility: w.lapse}
	for _, q := range w.queues {
		req.Queues = append(req.Queues, q.name)
	}
	w.task = &Task{Client: w.client}
	w.task.Call = callFunc(func(tx *Tx) error {
		ds, err := tx.Lease(req)
		if err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
			w.park(true)
			return err
		}
		if err != nil {
			s.fault("lease: %v", err)
			return err
		}
		if w.same {
			s.batch(w, ds)
		}
		for _, d := range ds {
			s.delivered(w, d)
		}
		if w.same {
			s.batchEnds(w, ds)
		}
		// One that has waited comes back with what the first room gives it, of a throttle or a budget.
		if len(ds) < w.count && !w.parked && (len(ds) == 0 || len(s.budgets) == 0 && !w.same) {
			s.asked = append(s.asked, w)
		}
		w.park(false)
		return nil
	})
	s.do(append(before, w.task)...)
}

// answered handles the reply to the worker's lease.
func (w *schedWorker) answered() {
	s := w.sim
	if w.task == nil || !w.task.Done() {
		return
	}
	err := w.task.Err()
	w.task = nil
	w.park(false)
	if errors.Is(err, ErrClientGone) {
		return
	}
	got := w.got
	w.got = nil
	if len(got) == 0 {
		if w.block == 0 {
			s.fault("a lease that waits without end has come back with nothing")
		}
		s.after(w.every, w.lease)
		return
	}
	w.left = len(got)
	for _, m := range got {
		receipt, life := m.receipt, w.life
		work := float64(s.work()) * w.factor
		if m.key.slow > 0 {
			work *= m.key.slow
		}
		if s.provider != nil {
			work, m.refused = s.provider.begin(s)
		}
		s.after(time.Duration(work), func() {
			if w.life == life {
				w.finish(m, receipt)
			}
		})
		s.delivers(m)
	}
}

// delivers maintains the ready messages of the key of a delivered message.
func (s *schedSim) delivers(m *schedMessage) {
	if m.key.keep > 0 {
		m.key.refill()
	}
}

// finish acks or nacks a message.
func (w *schedWorker) finish(m *schedMessage, r Receipt) {
	s := w.sim
	q := m.key.queue
	var task *Task
	if m.refused || w.fail > 0 && s.rng.Float64() < w.fail {
		delay := time.Duration(0)
		if s.rng.IntN(2) == 0 {
			delay = time.Duration(s.rng.Float64() * 3e9)
		}
		held := s.holdOf(m)
		task = &Task{Client: w.client, Call: callFunc(func(tx *Tx) error {
			var used *int64
			if len(m.budgets) == 0 {
				used = s.uses(m)
			}
			if _, err := tx.Nack(&Nack{Queue: q.name, Receipt: r, Delay: delay, Used: used, Holds: held.holds()}); err != nil {
				s.over(m, r, false, s.failedWork)
				return nil //nolint:nilerr // the lease has ended
			}
			s.over(m, r, true, s.failedWork)
			held.began(tx)
			m.settleTokens(used)
			s.comesBack(m, delay)
			return nil
		})}
	} else {
		task = &Task{Client: w.client, Call: callFunc(func(tx *Tx) error {
			used := s.uses(m)
			n, err := tx.AckWith(q.name, []Receipt{r}, AckOptions{Used: used})
			s.over(m, r, n == 1, s.wentWell)
			if n == 1 {
				m.settle(used)
				s.gone(m)
			}
			return err
		})}
	}
	w.done++
	if w.left--; w.left > 0 {
		s.do(task)
		return
	}
	if w.lazy {
		s.do(task)
		w.lease()
		return
	}
	w.leaseWith([]*Task{task})
}

// leave disconnects the worker. After a crash, its messages stay leased; otherwise it finishes
// them and leases no more.
func (w *schedWorker) leave(crash bool) {
	s := w.sim
	w.away = true
	if crash {
		w.life++
		w.left = 0
	}
	client := w.client
	s.call(func(tx *Tx) error {
		w.park(false)
		return Leave{client}.Apply(tx)
	})
	w.task = nil
}

func (w *schedWorker) comeBack() {
	w.away = false
	w.connect()
	if w.left == 0 {
		w.lease()
	}
}
