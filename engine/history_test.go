package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/keytable"
	"github.com/faisca/fila/engine/internal/timeline"
	"github.com/faisca/fila/storage"
)

// historySteps are those of the history that moments returns.
const historySteps = int(10 * time.Minute / timeline.Length)

// moments returns the history of a queue, or of all.
func (w *world) moments(queue string) (list []Moment) {
	w.t.Helper()
	w.must(func(tx *Tx) (err error) { list, err = tx.History(queue, 10*time.Minute); return err })
	return list
}

// happens does something to one of the queues.
func (w *world) happens(rng *rand.Rand, queues []string) {
	w.t.Helper()
	name := queues[rng.IntN(len(queues))]
	q := w.core.queues.byName[name]
	switch n := rng.IntN(12); {
	case q == nil:
		w.queue(name, QueueOptions{NoDLQ: true})
	case n == 0:
		w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: name}); return err })
	case n == 1:
		w.must(func(tx *Tx) error { return tx.DeleteQueue(name, true) })
	case n < 7:
		w.enqueue(name, fmt.Sprint("k", rng.IntN(5)), "m")
	default:
		for _, d := range w.lease(name, 1+rng.IntN(3)) {
			w.must(func(tx *Tx) error { _, err := tx.Ack(name, []Receipt{d.Receipt}); return err })
		}
	}
}

// present returns the present numbers of a queue, or of all.
func (w *world) present(queue string) (n figures.Numbers) {
	if queue != "" {
		if q := w.core.queues.byName[queue]; q != nil {
			counts := q.counts()
			n = figures.Numbers{Flow: counts.Flow, ByStatus: counts.ByStatus}
		}
		return n
	}
	events, _ := w.core.queues.figures.Deleted()
	all := Counts{Events: events}
	for _, q := range w.core.queues.byName {
		all.Add(q.counts())
	}
	return figures.Numbers{Flow: all.Flow, ByStatus: all.ByStatus}
}

// The history of each queue, and of all together, is what the counts were every ten seconds, whether
// or not the broker had anything to do then.
func TestHistoryIsWhatTheCountsWere(t *testing.T) {
	queues := []string{"a", "b", "c", "d"}
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // reproducible on purpose
		w := newWorld(t, nil)
		begun := timeline.StepAt(w.Now().UnixNano())
		was := map[string]map[uint32]figures.Numbers{"": {begun: {}}}
		for range 600 {
			from := timeline.StepAt(w.Now().UnixNano())
			w.now = w.now.Add(time.Duration(rng.Int64N(int64(6 * time.Second))))
			if rng.IntN(40) == 0 {
				w.now = w.now.Add(time.Duration(rng.Int64N(int64(15 * time.Minute))))
			}
			to := timeline.StepAt(w.Now().UnixNano())
			for _, name := range append(queues, "") { // nothing has happened in between
				if name != "" && w.core.queues.byName[name] == nil {
					delete(was, name)
					continue
				}
				if was[name] == nil {
					was[name] = map[uint32]figures.Numbers{from: {}}
				}
				for step := from + 1; step <= to; step++ {
					was[name][step] = w.present(name)
				}
			}
			w.happens(rng, queues)
			for name, numbers := range was {
				if name != "" && (w.core.queues.byName[name] == nil || unix(w.core.queues.byName[name].set.CreatedAt).Equal(w.Now())) {
					continue // deleted, or created just now
				}
				list := w.moments(name)
				if len(list) > historySteps || len(list) < min(historySteps, int(to-begun+1)) && name == "" {
					t.Fatalf("seed %d: %d moments", seed, len(list))
				}
				for _, m := range list {
					if want := numbers[timeline.StepAt(m.At.UnixNano())]; m.Numbers != want {
						t.Fatalf("seed %d, %q at %v of %v: %+v, want %+v", seed, name, m.At, w.Now(), m.Numbers, want)
					}
				}
			}
		}
	}
}

// Very many queues are recorded in slices. What happens between two of them counts once.
func TestManyQueuesAreRecordedInSlices(t *testing.T) {
	w := newWorld(t, nil)
	const n = 200
	name := func(i int) string { return fmt.Sprintf("q%03d", i) }
	for i := range n {
		w.queue(name(i), QueueOptions{NoDLQ: true})
		w.enqueue(name(i), "k", "m")
	}
	const turn = 32
	w.core.tasks.budget.Turn = turn
	w.now = w.now.Add(timeline.Length)
	turns := 0
	for w.tick(); w.core.history.no != 0; turns++ {
		// Queues get new numbers: some that are recorded already, and some that are not.
		purge := func(i int) *Task {
			return &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: name(i)}); return err })}
		}
		w.tick(purge(turns), purge(n-1-turns))
		if spent := w.core.tasks.budget.Spent; spent > 2*turn {
			t.Errorf("a turn is %d units", spent)
		}
	}
	if turns < 3 {
		t.Fatalf("%d turns", turns)
	}
	list := w.moments("")
	if got := list[len(list)-1]; got.Enqueued != n || got.Ready > n || got.Ready < n-int64(2*turns) {
		t.Errorf("%+v of %d queues", got.Numbers, n)
	}
}

// The history survives a failed commit and a restart: of what was before that, the numbers at the beginning of each minute.
func TestHistoryOutlivesRecoveriesAndRestarts(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.queue("other", QueueOptions{})
	for range 13 {
		w.enqueue("q", "k", "m")
		w.now = w.now.Add(timeline.Length)
	}
	before, all := w.moments("q"), w.moments("")
	if len(before) != 14 || before[13].Enqueued != 13 || before[3].Ready != 3 {
		t.Fatalf("%+v", before)
	}
	w.core.reset()
	if err := w.core.recover(); err != nil {
		t.Fatal(err)
	}
	if err := w.core.start(); err != nil {
		t.Fatal(err)
	}
	w.Do()
	if after := w.moments("q"); !slices.Equal(after, before) {
		t.Errorf("%+v after a recovery, want %+v", after, before)
	}
	if after := w.moments(""); !slices.Equal(after, all) {
		t.Errorf("%+v of all after a recovery, want %+v", after, all)
	}
	kept := slices.DeleteFunc(before, func(m Moment) bool { return m.At.Unix()%60 != 0 })
	w.restart()
	w.now = w.now.Add(timeline.Length)
	for i, last := 0, kept[len(kept)-1].Enqueued; i < len(kept); i++ {
		kept[i].Enqueued -= last // events count from the start
	}
	for range 2 { // the second time all is from the first start
		after := w.moments("q")
		if n := len(kept); len(after) < n+1 || !slices.Equal(after[:n], kept) || after[n].Enqueued != 0 || after[n].Ready != 13 {
			t.Fatalf("%+v after a restart, want %+v and what is new", after, kept)
		}
		if list := w.moments("other"); len(list) < len(kept) || list[len(list)-1].Numbers != (figures.Numbers{}) {
			t.Errorf("%+v of a queue in which nothing has happened", list)
		}
		w.restart()
		w.now = w.now.Add(timeline.Length)
	}
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) })
	w.queue("q", QueueOptions{})
	w.restart()
	w.now = w.now.Add(timeline.Length)
	if list := w.moments("q"); len(list) == 0 || list[len(list)-1].Enqueued != 0 {
		t.Errorf("%+v of a queue that was deleted and created", list)
	}
	if err := w.do(func(tx *Tx) error { _, err := tx.History("none", time.Minute); return err }); !errors.Is(err, ErrNoQueue) {
		t.Error(err)
	}
}

// Those that wait are listed in the order in which they are served, and only while they wait.
func TestConsumersAreListedInTheOrderInWhichTheyCame(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.queue("other", QueueOptions{})
	var served []uint64
	for i := range uint64(5) {
		req := &LeaseRequest{Queues: []string{"other", "q"}[i%2:], Count: 1, Block: time.Duration(i) * time.Minute}
		w.Do(&Task{Client: NewClient(100+i, func() {}), Call: callFunc(func(tx *Tx) error {
			ds, err := tx.Lease(req)
			if len(ds) > 0 {
				served = append(served, 100+i)
			}
			return err
		})})
	}
	listed := func(queue string, count int) (ids []uint64) {
		w.must(func(tx *Tx) error {
			ids = nil
			_, list, err := tx.Consumers(queue, 0, count)
			for _, x := range list {
				holds := slices.Contains(served, x.Client)
				if holds != (x.Queues == 0) || holds != (x.Leases == 1) || holds != !x.LeasedAt.IsZero() {
					t.Errorf("%d waits for %d queues and holds %d leases since %v, served %v", x.Client, x.Queues, x.Leases, x.LeasedAt, holds)
				}
				if block := time.Duration(x.Client-100) * time.Minute; !holds && block == 0 && !x.Until.IsZero() || holds && !x.Until.IsZero() || !holds && block > 0 && !x.Until.Equal(w.Now().Add(block)) {
					t.Errorf("%d waits until %v", x.Client, x.Until)
				}
				ids = append(ids, x.Client)
			}
			return err
		})
		return ids
	}
	if got := listed("q", 10); !slices.Equal(got, []uint64{100, 101, 102, 103, 104}) {
		t.Errorf("%v wait for q", got)
	}
	if got := listed("other", 10); !slices.Equal(got, []uint64{100, 102, 104}) {
		t.Errorf("%v wait for other", got)
	}
	if got := listed("q", 2); !slices.Equal(got, []uint64{100, 101}) {
		t.Errorf("the first two are %v", got)
	}
	w.enqueue("q", "k", "m")
	w.enqueue("q", "k", "m")
	if got := listed("q", 10); !slices.Equal(served, []uint64{100, 101}) || !slices.Equal(got, []uint64{100, 101, 102, 103, 104}) {
		t.Errorf("%v were served, %v wait or hold leases", served, got)
	}
	if err := w.do(func(tx *Tx) error { _, _, err := tx.Consumers("none", 0, 1); return err }); !errors.Is(err, ErrNoQueue) {
		t.Error(err)
	}
}

// keyMoments returns the history of a fairness key.
func (w *world) keyMoments(queue, key string, last time.Duration) (list []KeyMoment) {
	w.t.Helper()
	w.must(func(tx *Tx) (err error) { list, err = tx.KeyHistory(queue, key, last); return err })
	return list
}

// The history of a key says what happened to it, whether it has messages or not; the shares of all keys add up to what the
// queue has delivered.
func TestHistoriesOfKeysAddUpToThatOfTheQueue(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 12)) //nolint:gosec // reproducible on purpose
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{})
		const keys = 5
		type did struct{ enqueued, delivered, acked uint64 }
		var now [keys]did
		was := map[int64][keys]did{}
		var out []*Delivery
		for range 500 {
			from := timeline.StepAt(w.Now().UnixNano())
			w.now = w.now.Add(time.Duration(rng.Int64N(int64(6 * time.Second))))
			for step := from + 1; step <= timeline.StepAt(w.Now().UnixNano()); step++ {
				was[timeline.Begin(step)] = now
			}
			switch n := rng.IntN(30); {
			case n == 0:
				w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
				out = nil
			case n < 15:
				k := rng.IntN(keys)
				w.enqueue("q", fmt.Sprint("k", k), "m")
				now[k].enqueued++
			case n < 22:
				for _, d := range w.lease("q", 1+rng.IntN(3)) {
					now[d.Key[1]-'0'].delivered++
					out = append(out, d)
				}
			case len(out) > 0:
				d := out[0]
				out = out[1:]
				w.must(func(tx *Tx) error {
					n, err := tx.Ack("q", []Receipt{d.Receipt})
					now[d.Key[1]-'0'].acked += uint64(n)
					return err
				})
			}
		}
		sums := map[int64]uint64{}
		for k := range keys {
			for _, m := range w.keyMoments("q", fmt.Sprint("k", k), 10*time.Minute) {
				at := m.At.UnixNano()
				want := was[at][k]
				if got := (did{m.Enqueued, m.Delivered, m.Acked}); got != want {
					t.Fatalf("seed %d, key %d at %v: %+v, want %+v", seed, k, m.At, got, want)
				}
				if sums[at] += m.Delivered; sums[at] > m.OfQueue {
					t.Fatalf("seed %d: the keys have delivered %d messages by %v, the queue %d", seed, sums[at], m.At, m.OfQueue)
				}
			}
		}
		for _, m := range w.moments("q") {
			if sums[m.At.UnixNano()] != m.Delivered {
				t.Errorf("seed %d: the keys have delivered %d messages by %v, the queue %d", seed, sums[m.At.UnixNano()], m.At, m.Delivered)
			}
		}
	}
}

// The history of a key outlives a restart, as that of its queue does, and goes with the queue.
func TestHistoriesOfKeysOutliveARestart(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for range 12 {
		w.enqueue("q", "busy", "m")
		w.now = w.now.Add(timeline.Length)
	}
	w.Do()
	before := w.keyMoments("q", "busy", time.Hour)
	w.restart()
	w.Advance(5 * time.Minute)
	after := w.keyMoments("q", "busy", time.Hour)
	last, newest := before[len(before)-1], after[len(after)-1]
	if newest.Enqueued > last.Enqueued || newest.Enqueued < last.Enqueued-6 || newest.Ready != 12 {
		t.Errorf("%+v after a restart, was %+v", newest, last)
	}
	if waits := newest.At.Sub(newest.ReadySince); newest.ReadySince.IsZero() || waits < 0 || waits > 10*time.Minute {
		t.Errorf("the first message is ready since %v, at %v", newest.ReadySince, newest.At)
	}
	if !after[0].At.Before(last.At) {
		t.Errorf("it goes back to %v", after[0].At)
	}
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) })
	w.queue("q", QueueOptions{})
	w.Advance(time.Minute)
	if list := w.keyMoments("q", "busy", time.Hour); len(list) != 0 {
		t.Errorf("%+v of a key of a new queue", list)
	}
	for _, kind := range []string{storage.StateKeyHistory, storage.StateHistory} {
		prefix := storage.AppendStateKey(nil, kind)
		it := w.store.(*storage.Memory).Scan(storage.State, prefix, storage.After(prefix))
		n := 0
		for ok := it.Seek(prefix); ok; ok = it.Next() {
			n++
		}
		it.Close()
		if kind == storage.StateKeyHistory && n != 0 {
			t.Errorf("%d records of keys are left", n)
		}
	}
}

// However many keys there are, a bounded number is followed: while there is room each, then the busiest, and those that
// were asked for.
func TestFollowedKeysAreBoundedAndTheBusiest(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for i := range 3 * figures.FollowedOfQueueMax {
		w.enqueue("q", fmt.Sprint("quiet", i), "m")
	}
	q := w.core.queues.byName["q"]
	if n := q.figures.Followed(); n != figures.FollowedOfQueueMax {
		t.Fatalf("%d keys are followed", n)
	}
	followed := func(key string) bool {
		return q.keys.get(key) != nil && q.figures.Follows(uint64(keytable.HashOf(key)), key)
	}
	if followed("quiet100") {
		t.Fatal("a key for which there is no room is followed")
	}
	w.Advance(timeline.Length)
	for range 32 {
		w.enqueue("q", "backlog", "m")
	}
	if !followed("backlog") {
		t.Error("a key with a backlog is not followed")
	}
	w.keyMoments("q", "quiet100", time.Hour)
	if !followed("quiet100") {
		t.Error("a key that was asked for is not followed")
	}
	for range 40 {
		w.Advance(timeline.Length)
		for i := range 2 * figures.FollowedOfQueueMax {
			for range 16 {
				w.enqueue("q", fmt.Sprint("loud", i), "m")
			}
		}
		if w.Now().Sub(time.Unix(1_700_000_000, 0)) < figures.WatchedFor && !followed("quiet100") {
			t.Fatal("a key that was asked for is followed no more")
		}
		if n := q.figures.Followed(); n != figures.FollowedOfQueueMax {
			t.Fatalf("%d keys are followed", n)
		}
	}
	loud := 0
	for i := range 2 * figures.FollowedOfQueueMax {
		if followed(fmt.Sprint("loud", i)) {
			loud++
		}
	}
	if loud < figures.FollowedOfQueueMax-1 {
		t.Errorf("%d of the busiest keys are followed", loud)
	}
	if followed("quiet100") {
		t.Error("a key that was asked for long ago has the place of a busy one")
	}
}

// With very many queues none is left without, and those of all are bounded.
func TestFollowedKeysOfAllQueuesAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	const queues = figures.FollowedMax/figures.FollowedOfQueueMax + 8
	for i := range queues {
		name := fmt.Sprintf("q%03d", i)
		w.queue(name, QueueOptions{NoDLQ: true})
		for k := range figures.FollowedOfQueueMax {
			w.enqueue(name, fmt.Sprint("k", k), "m")
		}
	}
	n := 0
	for i := range queues {
		f := w.core.queues.byName[fmt.Sprintf("q%03d", i)].figures.Followed()
		if n += f; f == 0 {
			t.Errorf("no key of queue %d is followed", i)
		}
	}
	if n != figures.FollowedMax {
		t.Errorf("%d keys are followed", n)
	}
}

// A key without messages is followed for an hour.
func TestAKeyWithoutMessagesIsFollowedForAnHour(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.enqueue("q", "k", "m")
	d := w.lease("q", 1)[0]
	w.Advance(timeline.Length)
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
	q := w.core.queues.byName["q"]
	w.Advance(50 * time.Minute)
	w.Do()
	if q.figures.Followed() != 1 {
		t.Fatal("it is not followed any more")
	}
	w.Advance(30 * time.Minute)
	w.Do()
	if q.figures.Followed() != 0 {
		t.Error("it is still followed")
	}
	w.enqueue("q", "k", "m")
	w.Advance(2 * time.Minute)
	if list := w.keyMoments("q", "k", time.Hour); len(list) == 0 || list[len(list)-1].Enqueued != 1 {
		t.Errorf("%+v of a key that is followed again", list)
	}
}

// A clock that has gone back while the broker was down leaves nothing of the future.
func TestHistoryOfAClockThatHasGoneBack(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	for range 30 {
		w.enqueue("q", "k", "m")
		w.Advance(time.Minute)
	}
	back := openWorld(t, store, time.Unix(1_700_000_600, 0), nil)
	back.Advance(3 * timeline.Length)
	for _, list := range [][]Moment{back.moments("q"), back.moments("")} {
		for i, m := range list {
			if m.At.After(back.Now()) || i > 0 && !m.At.After(list[i-1].At) || int64(m.Enqueued) > 0 {
				t.Errorf("moment %d is at %v, it is %v: %+v", i, m.At, back.Now(), m.Numbers)
			}
		}
		if len(list) == 0 || list[len(list)-1].Ready != 30 {
			t.Errorf("%+v", list)
		}
	}
	for i, m := range back.keyMoments("q", "k", time.Hour) {
		if m.At.After(back.Now()) || m.Enqueued > 30 {
			t.Errorf("moment %d of the key is at %v, it is %v", i, m.At, back.Now())
		}
	}
}

// The history of a throttle outlives a restart, and one with a setting has one before a client asks.
func TestTheHistoryOfAThrottleOutlivesARestart(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{NoDLQ: true})
	w.must(func(tx *Tx) error { return tx.SetThrottle("api", ThrottleOptions{Concurrency: new(uint64(1000))}) })
	for range 40 { // ten minutes
		w.send(Enqueue{Queue: "q", Meta: Meta{Throttles: []string{"api"}}})
		w.lease("q", 1)
		w.now = w.now.Add(15 * time.Second)
		w.Do()
	}
	moments := func() (list []ThrottleMoment) {
		w.must(func(tx *Tx) (err error) { list, err = tx.ThrottleHistory("api", time.Hour); return err })
		return list
	}
	before := moments()
	w.restart()
	w.now = w.now.Add(2 * time.Minute)
	w.Do()
	after := moments()
	if len(before) < 9 || len(after) < 9 || before[0].Passed > 8 {
		t.Fatalf("%d moments before, %d after: %+v", len(before), len(after), before)
	}
	known, same := map[time.Time]ThrottleMoment{}, 0
	for _, m := range before {
		known[m.At] = m
	}
	for _, m := range after { // those of the last minute are lost
		if was, is := known[m.At]; is && m.At.Before(before[len(before)-1].At.Add(-time.Minute)) {
			if same++; was != m {
				t.Errorf("%+v was before the restart, %+v after", was, m)
			}
		}
	}
	if same < 7 {
		t.Errorf("%d moments are known after the restart: %+v", same, after)
	}
}
