package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

var stateBrokers = flag.Int("state-brokers", 10_000, "random brokers whose states are judged at length") //nolint:gochecknoglobals // a flag

// stateWorld is a random broker, of which each key and each queue says why its messages do not move.
//
// A state is judged by what it says to do. The change that it names is made, and nothing else: then the next message goes,
// or a later state of the rule says what else is missing. One that lacks only a consumer must be right at once: with one
// more, which asks until it gets nothing, the next message of the key goes, or messages before it have used
// what it needs. Where there is no ready message, such a consumer gets none of the key.
type stateWorld struct {
	*world
	r      *rand.Rand
	lie    *stateLie
	queues []string
	leased map[string][]Receipt
	asked  map[string]time.Time // when a consumer asked last
	waits  []*stateWait
	client uint64
	asks   string // the queue about which explain asks
	met    *[KeyEmpty + 1]int
}

// stateWait is a consumer that waits.
type stateWait struct {
	queue  string
	client *Client
	task   *Task
	got    []*Delivery
}

// stateLie is a planted fault.
type stateLie struct {
	name string
	says func(s *stateWorld, x *KeyInfo) // changes what is said of a key; nil: the truth
	hide func(q *queue)                  // changes what the rule looks at; nil: nothing
}

func newStateWorld(t *testing.T, seed uint64, lie *stateLie, met *[KeyEmpty + 1]int) *stateWorld {
	t.Helper()
	stepper, err := NewStepper(DefaultConfig(), storage.NewMemory(), time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	s := &stateWorld{
		world: &world{stepper, t}, r: rand.New(rand.NewPCG(seed, 41)), lie: lie, met: met, //nolint:gosec // reproducible on purpose
		queues: []string{"a", "b", "ordered"}[:1+seed%3], leased: map[string][]Receipt{}, asked: map[string]time.Time{},
	}
	for _, q := range s.queues {
		o := QueueOptions{NoDLQ: true}
		if q == "ordered" {
			o = orderedQueue()
			o.NoDLQ = true
		}
		s.queue(q, o)
	}
	one, two, slow := uint64(1), uint64(1+s.r.IntN(3)), 0.01+s.r.Float64()/10
	s.throttle("rate", ThrottleOptions{Rate: &slow, Burst: &two})
	s.throttle("slots", ThrottleOptions{Concurrency: &two})
	s.throttle("both", ThrottleOptions{Rate: &slow, Burst: &two, Concurrency: &one})
	s.throttle("cost", ThrottleOptions{Rate: &slow, Burst: new(uint64(5)), ByCost: true})
	s.setBudget("full", BudgetOptions{})
	s.setBudget("empty", BudgetOptions{})
	s.credit("full", 1_000_000)
	for range 5 + s.r.IntN(30) {
		s.step()
	}
	return s
}

func (s *stateWorld) any() (queue, key string) {
	return s.queues[s.r.IntN(len(s.queues))], fmt.Sprint("k", s.r.IntN(4))
}

// step is one thing that producers, consumers, operators or time do.
func (s *stateWorld) step() {
	queue, key := s.any()
	switch n := s.r.IntN(20); {
	case n < 9:
		req := Enqueue{Queue: queue, Key: key, Payload: []byte("m"), Meta: Meta{Cost: uint32(1 + s.r.IntN(4))}} //nolint:gosec // few
		req.Throttles = [][]string{nil, nil, {"rate"}, {"slots"}, {"both"}, {"cost"}, {"slots", "cost"}, {"unset"}}[s.r.IntN(8)]
		req.Budgets = [][]string{nil, nil, nil, {"full"}, {"empty"}}[s.r.IntN(5)]
		if queue != "ordered" && s.r.IntN(6) == 0 {
			req.Delay = time.Hour
		}
		s.send(req)
	case n < 13:
		s.ask(queue, fmt.Sprint("worker-", s.r.IntN(3)), 1+s.r.IntN(3))
	case n < 15:
		if list := s.leased[queue]; len(list) > 0 {
			s.must(func(tx *Tx) error { _, err := tx.Ack(queue, list[:1]); return err })
			s.leased[queue] = list[1:]
		}
	case n == 15:
		on := s.r.IntN(2) == 0
		s.must(func(tx *Tx) error { return tx.PauseKey(queue, key, on) })
	case n == 16:
		on := s.r.IntN(3) == 0
		s.must(func(tx *Tx) error { return tx.Pause(queue, false, true, on) })
	case n == 17 && s.r.IntN(2) == 0:
		s.wait(queue)
	case n == 18 && len(s.waits) > 0:
		s.Leave(s.waits[0].client)
		s.Do()
		s.waits = s.waits[1:]
	default:
		s.Advance(time.Duration(s.r.IntN(90)) * time.Second)
	}
	s.settled()
}

// settled takes what consumers that waited have got.
func (s *stateWorld) settled() {
	kept := s.waits[:0]
	for _, w := range s.waits {
		if !w.task.Done() {
			kept = append(kept, w)
			continue
		}
		s.asked[w.queue] = s.Now()
		for _, d := range w.got {
			s.leased[w.queue] = append(s.leased[w.queue], d.Receipt)
		}
	}
	s.waits = kept
}

func (s *stateWorld) wait(queue string) {
	s.client++
	w := &stateWait{queue: queue, client: NewClient(s.client, func() {})}
	req := &LeaseRequest{Queues: []string{queue}, Count: 1, Visibility: 1000 * time.Hour}
	w.task = &Task{Client: w.client, Call: callFunc(func(tx *Tx) (err error) { w.got, err = tx.Lease(req); return err })}
	s.Do(w.task)
	s.asked[queue] = s.Now()
	s.waits = append(s.waits, w)
}

// ask leases as a consumer that does not wait.
func (s *stateWorld) ask(queue, name string, count int) (ds []*Delivery) {
	s.client++
	req := &LeaseRequest{Queues: []string{queue}, Count: count, Block: -1, Visibility: 1000 * time.Hour, Consumer: name}
	task := &Task{Client: NewClient(s.client, func() {}), Call: callFunc(func(tx *Tx) (err error) { ds, err = tx.Lease(req); return err })}
	s.Do(task)
	if !task.Done() || task.Err() != nil {
		s.t.Fatalf("a lease is done %v: %v", task.Done(), task.Err())
	}
	s.asked[queue] = s.Now()
	for _, d := range ds {
		s.leased[queue] = append(s.leased[queue], d.Receipt)
	}
	return ds
}

// explain asks why a key does not move.
func (s *stateWorld) explain(queue, key string) (x KeyInfo) {
	q := s.core.queues.byName[queue]
	s.asks = queue
	if s.lie != nil && s.lie.hide != nil {
		before, asked := q.figures.Messages, q.askedAt
		defer func() { q.figures.Messages, q.askedAt = before, asked }()
		s.lie.hide(q)
	}
	req := &ExplainKey{Queue: queue, Key: key}
	s.must(func(tx *Tx) error { e, err := tx.ExplainKey(req); x = e.KeyInfo; return err })
	if s.lie != nil && s.lie.says != nil {
		s.lie.says(s, &x)
	}
	s.met[x.State]++
	return x
}

// free is what a message of a queue says that nothing stops, by the records of the test.
func (s *stateWorld) free(queue string) KeyState {
	for _, w := range s.waits {
		if w.queue == queue {
			return KeyReady
		}
	}
	at, asked := s.asked[queue]
	switch {
	case len(s.leased[queue]) > 0:
		return KeyBusy
	case asked && s.Now().Sub(at) < time.Minute:
		return KeyReady
	default:
		return KeyNoConsumer
	}
}

// change makes the one change that the state of a key names.
func (s *stateWorld) change(queue string, x *KeyInfo) {
	switch x.State {
	case KeyPaused:
		s.must(func(tx *Tx) error { return tx.Pause(queue, false, true, false) })
		s.must(func(tx *Tx) error { return tx.PauseKey(queue, x.Key, false) })
	case KeyThrottled, KeyConcurrency:
		for _, b := range x.BlockedBy {
			s.throttle(b.Throttle, ThrottleOptions{Concurrency: new(uint64(1_000_000))})
		}
	case KeyNoCredit:
		s.credit(x.Lacks.Budget, 1_000_000)
	case KeyOrdered:
		req := &Cancel{Queue: queue, IDs: []ID{x.WaitsFor}}
		s.must(func(tx *Tx) error { _, err := tx.Cancel(req); return err })
		for i, r := range s.leased[queue] {
			if r.ID == x.WaitsFor {
				s.leased[queue] = append(s.leased[queue][:i:i], s.leased[queue][i+1:]...)
				break
			}
		}
	default:
	}
	s.settled()
}

// judge returns what is wrong with the state of a key, nil if it says the truth.
func (s *stateWorld) judge(queue, key string) error {
	x := s.explain(queue, key)
	for x.State <= KeyOrdered {
		if (x.State == KeyThrottled || x.State == KeyConcurrency) && len(x.BlockedBy) == 0 || x.State == KeyNoCredit && x.Lacks == nil {
			return fmt.Errorf("it is %s and does not say by what", x.State)
		}
		delivered := s.core.counts().Delivered
		s.change(queue, &x)
		after := s.explain(queue, key)
		if s.core.counts().Delivered > delivered {
			return nil // to a consumer that has waited
		}
		// A change may also be one for the keys before it, for which a throttle by cost saves its tokens then.
		before := after.State != x.State && slices.ContainsFunc(after.BlockedBy, func(b Blocker) bool { return b.Saved })
		if after.State <= x.State && !before {
			return fmt.Errorf("it is %s (%s), and still %s (%s) after the change that it names", x.State, x.Reason, after.State, after.Reason)
		}
		x = after
	}
	deliverable := x.State == KeyBusy || x.State == KeyNoConsumer || x.State == KeyReady
	if want := s.free(queue); deliverable && x.State != want {
		return fmt.Errorf("it is %s (%s), and by the leases and requests %s", x.State, x.Reason, want)
	}
	others := 0
	for range 200 {
		ds := s.ask(queue, "one more", 1)
		switch {
		case len(ds) == 0 && deliverable && others == 0:
			return fmt.Errorf("it is %s (%s), and one more consumer gets nothing", x.State, x.Reason)
		case len(ds) == 0 && deliverable:
			if after := s.explain(queue, key); after.State > KeyOrdered {
				return fmt.Errorf("it is %s, and still %s (%s) after a consumer has got %d others", x.State, after.State, after.Reason, others)
			}
			return nil
		case len(ds) == 0:
			return nil
		case ds[0].Key == key && !deliverable:
			return fmt.Errorf("it is %s (%s), and one more consumer gets a message of it", x.State, x.Reason)
		case ds[0].Key == key:
			return nil
		}
		others++
	}
	return fmt.Errorf("it is %s, and 200 others have gone before it", x.State)
}

// survey asks for the state of a queue, and compares it with that of a sweep at the same time.
func (s *stateWorld) survey(queue string) (x QueueState, err error) {
	req := &Survey{Queue: queue}
	s.must(func(tx *Tx) (err error) { x, _, err = tx.Survey(req); return err })
	s.core.sweep = sweep{}
	f := &Figures{Queue: queue}
	var page FiguresPage
	s.must(func(tx *Tx) (err error) { page, err = tx.Figures(f); return err })
	if got := page.Queues[0].State; got != x {
		err = fmt.Errorf("FILA.STATS says %v, FILA.FIGURES %v", x, got)
	}
	return x, err
}

// judgeQueue returns what is wrong with the state of a queue.
func (s *stateWorld) judgeQueue(queue string) error {
	x, err := s.survey(queue)
	for changes := 0; err == nil && x.State <= KeyOrdered; changes++ {
		if changes > int(KeyOrdered)*2 {
			return fmt.Errorf("it is %s after %d changes", x.State, changes)
		}
		delivered := s.core.counts().Delivered
		for k := range s.core.queues.byName[queue].roster.All() {
			if i := s.key(queue, k.name); i.State == x.State {
				s.change(queue, &i)
			}
		}
		if x.State == KeyPaused {
			s.must(func(tx *Tx) error { return tx.Pause(queue, false, true, false) })
			s.settled()
		}
		if s.core.counts().Delivered > delivered {
			return nil
		}
		after, err := s.survey(queue)
		if err == nil && after.State == x.State { // it may be an earlier one: see judge
			err = fmt.Errorf("it is %s (%s), and still %s (%s) after the changes that its keys name", x.State, x.Reason, after.State, after.Reason)
		}
		if err != nil {
			return err
		}
		x = after
	}
	if err != nil {
		return err
	}
	deliverable := x.State == KeyBusy || x.State == KeyNoConsumer || x.State == KeyReady
	if ds := s.ask(queue, "one more", 1); deliverable != (len(ds) > 0) {
		return fmt.Errorf("it is %s (%s), and one more consumer gets %d messages", x.State, x.Reason, len(ds))
	}
	return nil
}

// judgeBroker judges a key and a queue of a random broker.
func judgeBroker(t *testing.T, seed uint64, lie *stateLie, met *[KeyEmpty + 1]int) error {
	t.Helper()
	s := newStateWorld(t, seed, lie, met)
	queue, key := s.any()
	if s.r.IntN(4) == 0 && lie == nil {
		if err := s.judgeQueue(queue); err != nil {
			return fmt.Errorf("queue %s: %w", queue, err)
		}
	} else if err := s.judge(queue, key); err != nil {
		return fmt.Errorf("key %s of %s: %w", key, queue, err)
	}
	if lie != nil {
		return nil
	}
	return s.Check()
}

func TestWhatAStateNamesMakesTheNextMessageGo(t *testing.T) {
	n := *stateBrokers
	if testing.Short() {
		n = 300
	}
	var met [KeyEmpty + 1]int
	for i := range uint64(n) { //nolint:gosec // many
		if err := judgeBroker(t, *simFirst+i, nil, &met); err != nil {
			t.Fatalf("broker %d: %v", *simFirst+i, err)
		}
	}
	for s, n := range met {
		if state := KeyState(s); n == 0 && !slices.Contains([]KeyState{KeyLoading, KeyHeld, KeyGathering}, state) { //nolint:gosec // few; holds and batches are not drawn
			t.Errorf("no key was %s", state)
		}
	}
	t.Logf("states by number: %v", met)
}

func TestPlantedLiesAboutStatesAreFound(t *testing.T) {
	from := func(to KeyState, states ...KeyState) func(s *stateWorld, x *KeyInfo) {
		return func(_ *stateWorld, x *KeyInfo) {
			for _, state := range states {
				if x.State == state {
					x.State = to
				}
			}
		}
	}
	free := func(states ...KeyState) func(s *stateWorld, x *KeyInfo) {
		return func(s *stateWorld, x *KeyInfo) { from(s.free(s.asks), states...)(s, x) }
	}
	for _, lie := range []*stateLie{
		{name: "no consumer while workers work", hide: func(q *queue) { q.figures.Leased = 0 }},
		{name: "requests of consumers that poll are forgotten", hide: func(q *queue) { q.askedAt = 0 }},
		{name: "a pause is not mentioned", says: free(KeyPaused)},
		{name: "a budget is not mentioned", says: free(KeyNoCredit)},
		{name: "a throttle is not mentioned", says: free(KeyThrottled)},
		{name: "leases of a throttle are not mentioned", says: free(KeyConcurrency)},
		{name: "one of several throttles is named", says: func(_ *stateWorld, x *KeyInfo) { x.BlockedBy = x.BlockedBy[:min(len(x.BlockedBy), 1)] }},
		{name: "a message that is out is not mentioned", says: free(KeyOrdered)},
		{name: "leased messages could be delivered", says: free(KeyLeased)},
		{name: "it has no messages", says: from(KeyEmpty, KeyBusy, KeyNoConsumer)},
	} {
		t.Run(lie.name, func(t *testing.T) {
			var met [KeyEmpty + 1]int
			for i := range uint64(3000) {
				if err := judgeBroker(t, *simFirst+i, lie, &met); err != nil {
					t.Logf("found in broker %d: %v", *simFirst+i, err)
					return
				}
			}
			t.Error("not found in 3000 brokers")
		})
	}
}
