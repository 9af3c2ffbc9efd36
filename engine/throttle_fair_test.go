package engine

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// The properties of throttles: they admit exactly what they should, and delay only the
// messages that name them.

func (w *world) throttle(key string, o ThrottleOptions) {
	w.t.Helper()
	w.must(func(tx *Tx) error { return tx.SetThrottle(key, o) })
}

// bucket is a token bucket by its definition, independent of the engine's.
type bucket struct {
	rate, burst, tokens float64
	at                  time.Time
}

// pass consumes a token at a given time and reports whether there was one.
func (b *bucket) pass(now time.Time) bool {
	b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
	b.tokens--
	return b.tokens > -1e-6
}

// TestARateIsExactToTheMessage checks each delivery against the definition, and the sum
// over a minute. Consumers either wait or poll every millisecond.
func TestARateIsExactToTheMessage(t *testing.T) {
	for _, x := range []rateTrial{
		{rate: 0.5, burst: 1, over: time.Minute},
		{rate: 3.3, burst: 1, over: time.Minute},
		{rate: 3.3, burst: 4, over: time.Minute}, // ends within the rounding of a token
		{rate: 1000, burst: 1000, over: time.Minute},
		{rate: 1000, burst: 5, poll: time.Millisecond, over: time.Minute},
		{rate: 150_000, burst: 150_000, poll: time.Millisecond, over: time.Second},
		{rate: 150_000, burst: 150_000, poll: time.Millisecond, over: time.Minute, long: true},
	} {
		t.Run(fmt.Sprintf("%v a second, burst %d, poll %v, over %v", x.rate, x.burst, x.poll, x.over), func(t *testing.T) {
			if x.long && testing.Short() {
				t.Skip("takes long")
			}
			if testing.Short() && x.rate >= 1000 {
				x.over /= 5
			}
			x.run(t)
		})
	}
}

// rateTrial is a throttle with the way and the duration of its use.
type rateTrial struct {
	rate  float64
	burst uint64
	poll  time.Duration // 0: a consumer waits
	over  time.Duration
	long  bool
}

func (x *rateTrial) run(t *testing.T) {
	t.Helper()
	m := newMarket(t, nil)
	m.throttle("t", ThrottleOptions{Rate: &x.rate, Burst: &x.burst})
	s := m.key("k", 1)
	b := &bucket{rate: x.rate, burst: float64(x.burst), tokens: float64(x.burst), at: m.Now()}
	count := 0
	got := func(*stall, uint32) {
		count++
		if !b.pass(m.Now()) {
			t.Fatalf("delivery %d came when the bucket held %.6f", count, b.tokens+1)
		}
	}
	end := m.Now().Add(x.over)
	for {
		if len(s.backlog) < 5000 {
			m.put(s, 20_000, nil, 1, "t")
		}
		for len(s.backlog) > 0 && m.take(1000, got) > 0 {
		}
		if len(s.backlog) == 0 {
			continue // a burst may exceed the backlog
		}
		if !m.Now().Before(end) {
			break
		}
		if x.poll > 0 {
			m.Advance(x.poll)
		} else {
			m.step(end)
		}
	}
	most := float64(x.burst) + x.rate*x.over.Seconds()
	t.Logf("%d deliveries of %.1f", count, most)
	if c := float64(count); c > most+1e-6 || c < 0.99*math.Floor(most) {
		t.Errorf("%d deliveries in %v, want %.1f", count, x.over, most)
	}
}

// step advances the time to the next timer, but not beyond the end.
func (w *world) step(end time.Time) {
	at := end
	if n := w.core.nextTimer(); n != 0 && time.Unix(0, n).Before(end) {
		at = time.Unix(0, n)
	}
	w.Advance(at.Sub(w.Now()))
}

// TestThrottledKeysTakeNothingFromTheOthers has a thousand keys without capacity beside ten
// with it. Each lease gets a message at once, the ten share equally, and no key is
// inspected repeatedly while it waits.
func TestThrottledKeysTakeNothingFromTheOthers(t *testing.T) {
	const throttled, free, rounds = 1000, 10, 2000
	m := newMarket(t, nil)
	rate, burst := 1.0, uint64(1)
	for i := range throttled {
		name := fmt.Sprint("throttle-", i)
		m.throttle(name, ThrottleOptions{Rate: &rate, Burst: &burst})
		m.put(m.key(fmt.Sprint("throttled-", i), 1), 10, nil, 1, name)
	}
	for i := range free {
		m.put(m.key(fmt.Sprint("free-", i), 1), 4*rounds/free+throttled, nil, 1)
	}
	start := m.Now()
	for range rounds { // two seconds, two deliveries a millisecond
		if n := m.take(2, nil); n != 2 {
			t.Fatalf("after %d deliveries a consumer got %d messages although keys have some that nothing holds back", len(m.order), n)
		}
		m.Advance(time.Millisecond)
	}
	limited, least, most := int64(0), int64(math.MaxInt64), int64(0)
	for i, s := range m.keys {
		if i < throttled {
			limited += s.got
			continue
		}
		least, most = min(least, s.got), max(most, s.got)
	}
	may := float64(throttled) * (1 + rate*m.Now().Sub(start).Seconds())
	t.Logf("of %d deliveries the throttled keys got %d (they may have %.0f), each free key %d to %d", len(m.order), limited, may, least, most)
	if float64(limited) > may {
		t.Errorf("throttled keys got %d, more than %.0f", limited, may)
	}
	if most-least > 1 {
		t.Errorf("free keys got from %d to %d", least, most)
	}
	var refused, passed uint64
	m.must(func(tx *Tx) error {
		_, list := tx.Throttles(0, throttled, false, func(string) bool { return true })
		for i := range list {
			refused, passed = refused+list[i].Refused, passed+list[i].Admitted
		}
		return nil
	})
	if refused > passed+throttled {
		t.Errorf("%d tries in vain for %d that passed: somebody asks again and again", refused, passed)
	}
}

// TestKeysUnderOneThrottleShareItByWeight checks that tokens and concurrency slots are
// shared by weight, too.
func TestKeysUnderOneThrottleShareItByWeight(t *testing.T) {
	rate, burst, few := 50.0, uint64(1), uint64(3)
	for name, o := range map[string]ThrottleOptions{
		"rate": {Rate: &rate, Burst: &burst}, "concurrency": {Concurrency: &few}, "both": {Rate: &rate, Concurrency: &few},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(t, nil)
			m.throttle("shared", o)
			for _, weight := range []uint32{1, 3} {
				m.put(m.key(fmt.Sprint("weight-", weight), weight), 2000, nil, 1, "shared")
			}
			for len(m.order) < 1000 {
				for m.take(2, nil) > 0 && len(m.order) < 1000 {
				}
				m.Advance(5 * time.Millisecond)
			}
			if light := m.keys[0].got; light < 245 || light > 255 {
				t.Errorf("of %d deliveries the light key got %d, want a quarter", len(m.order), light)
			}
		})
	}
}

// Messages of a key share its throttle set. Throttles are created and removed while some
// messages are leased and others wait, and each counts what is in force now.
func TestThrottlesComeAndGoUnderTheirMessages(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	one, two := uint64(1), uint64(2)
	enqueue := func(throttles ...string) {
		t.Helper()
		req := &Enqueue{Queue: "q", Key: "k", Payload: []byte("x"), Meta: Meta{Throttles: throttles}}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	}
	want := func(n, count int) []*Delivery {
		t.Helper()
		ds := w.lease("q", count)
		if len(ds) != n {
			t.Fatalf("%d messages are leased, want %d", len(ds), n)
		}
		return ds
	}
	held := func(key string, n int64) {
		t.Helper()
		w.must(func(tx *Tx) error {
			if i, ok := tx.Throttle(key); !ok || i.InUse != n {
				t.Errorf("throttle %q holds %d, want %d", key, i.InUse, n)
			}
			return nil
		})
	}
	for range 4 {
		enqueue("a", "b")
	}
	want(1, 1) // both keys are looked up, and no throttle is set
	w.throttle("a", ThrottleOptions{Concurrency: &one})
	held("a", 1)
	want(0, 9)
	w.must(func(tx *Tx) error { _, err := tx.DeleteThrottle("a"); return err })
	second := want(1, 1)
	w.throttle("b", ThrottleOptions{Concurrency: &one}) // counts the leases
	held("b", 2)
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{second[0].Receipt}); return err })
	held("b", 1)
	want(0, 9)
	w.throttle("b", ThrottleOptions{Concurrency: &two})
	want(1, 9)
	held("b", 2)
}

// TestAClassComesByTheWeightOfAllOfItsKeys has a class whose first key is light and costly, and
// whose second one is heavy. Both have come before its first delivery, which counts by their weight
// together: by that of the first key, 100 messages of the other class would come before.
func TestAClassComesByTheWeightOfAllOfItsKeys(t *testing.T) {
	s := newSchedSim(1, nil)
	s.relaxed = true
	s.constant(10 * time.Millisecond)
	one, two := s.throttle(0, 0, 1), s.throttle(0, 0, 1)
	q := s.queue()
	other := q.key(1, one)
	other.keep = 4
	other.refill()
	s.crew(4, q)
	s.run(100*time.Millisecond, nil)
	costly, heavy := q.key(1, one, two), q.key(99, one, two)
	costly.put(100, 4, 0)
	heavy.keep = 4
	heavy.refill()
	before := other.got
	s.run(2*time.Second, func() bool { return heavy.got >= 20 })
	if n := other.got - before; heavy.got < 20 || n > 10 {
		t.Errorf("%d messages of the other class and %d of the heavy key went out, want at most 10 and 20", n, heavy.got)
	}
}
