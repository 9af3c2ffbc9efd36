package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// schedProvider does the work of all workers, so many calls at a time; it refuses further ones.
type schedProvider struct {
	most           int
	active         int
	calls, refused int
	busy           float64 // seconds of calls that it has taken
}

// begin is a call: how long it takes in nanoseconds, and whether it is refused.
func (p *schedProvider) begin(s *schedSim) (work float64, refused bool) {
	p.calls++
	if p.active >= p.most {
		p.refused++
		return 50e6, true
	}
	p.active++
	work = float64(s.work())
	p.busy += work / 1e9
	s.after(time.Duration(work), func() { p.active-- })
	return work, false
}

// TestAnAdaptiveThrottleFollowsAProvider that takes 20 calls at a time and refuses more: at least
// 80 % of what it can do is used, and at most 15 % of the calls are refused, although 50 are
// allowed. Without ADAPTIVE nearly all are refused.
func TestAnAdaptiveThrottleFollowsAProvider(t *testing.T) {
	run := func(seed uint64, work func(s *schedSim) time.Duration, adaptive bool, seconds float64) (use, refused float64) {
		t.Helper()
		s := newSchedSim(seed, nil)
		s.relaxed = true
		s.work = func() time.Duration { return work(s) }
		s.provider = &schedProvider{most: 20}
		th := s.newThrottle()
		if adaptive {
			th.adaptive = &schedLimit{least: 1}
		}
		th.set(0, 0, 50)
		q := s.queue()
		q.endless(60, 1, 1, th)
		s.crew(60, q)
		s.run(time.Duration(seconds*1e9), nil)
		for _, f := range s.faults {
			t.Error(f)
		}
		s.sameLimits(t)
		p := s.provider
		return p.busy / seconds / float64(p.most), float64(p.refused) / float64(p.calls)
	}
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for name, work := range map[string]func(s *schedSim) time.Duration{
		"exponential": exponential, "uniform": uniform, "narrow": narrow,
		"constant": func(*schedSim) time.Duration { return time.Second },
	} {
		for seed := range seeds {
			use, refused := run(seed, work, true, 300)
			_, without := run(seed, work, false, 5) // what was refused piles up
			t.Logf("%s, seed %d: %.1f %% of the capacity used, %.1f %% of the calls refused; %.1f %% without ADAPTIVE", name, seed, 100*use, 100*refused, 100*without)
			if use < 0.8 || refused > 0.15 {
				t.Errorf("%s, seed %d: %.1f %% of the capacity used, %.1f %% of the calls refused", name, seed, 100*use, 100*refused)
			}
			if without < 0.5 {
				t.Errorf("%s, seed %d: %.1f %% of the calls refused without ADAPTIVE: the provider is no test", name, seed, 100*without)
			}
		}
	}
}

// wrongHook dead-letters what has failed with the error "wrong", or with an expired lease.
type wrongHook struct{ simHook }

func (wrongHook) OnFailure(_ time.Time, msg *hook.Message, _ hook.View, _ hook.Bounds) (hook.FailureDecision, error) {
	if msg.Error == "wrong" || msg.Error == "" {
		return hook.FailureDecision{Action: hook.FailureDead}, nil
	}
	return hook.FailureDecision{}, nil
}

type wrongScripts struct{ simScripts }

func (wrongScripts) Load(_ hook.Caller, kind hook.Kind, _ string) (hook.Hook, error) {
	return wrongHook{simHook{kind}}, nil
}

// adaptive sets an adaptive throttle with the name p.
func (w *world) adaptive(least, most uint64) {
	w.t.Helper()
	w.must(func(tx *Tx) error {
		return tx.SetThrottle("p", ThrottleOptions{Concurrency: &most, Adaptive: true, Min: &least})
	})
}

// calls enqueues messages that name the throttle p, and leases them.
func (w *world) calls(queue string, n int) []*Delivery {
	w.t.Helper()
	for range n {
		req := &Enqueue{Queue: queue, Key: "k", Payload: []byte("call"), Meta: Meta{Throttles: []string{"p"}}}
		if err := w.Prepare(req); err != nil {
			w.t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	}
	ds := w.lease(queue, n)
	if len(ds) != n {
		w.t.Fatalf("%d of %d are leased", len(ds), n)
	}
	return ds
}

// fails ends a lease as failed, also where a hook decides.
func (w *world) fails(d *Delivery, text string, dead bool) {
	w.t.Helper()
	req := &Nack{Queue: d.Queue, Receipt: d.Receipt, Error: text, Delay: -1, Dead: dead}
	task := &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Nack(req); return err })}
	for w.Do(task); !task.Done(); {
		w.Do()
	}
	if task.Err() != nil {
		w.t.Fatal(task.Err())
	}
}

// wantLimit compares what the throttle p shows.
func (w *world) wantLimit(limit float64, cuts uint64) {
	w.t.Helper()
	var info ThrottleInfo
	w.must(func(tx *Tx) error { info, _ = tx.Throttle("p"); return nil })
	if info.Limit != limit || info.Cuts != cuts {
		w.t.Errorf("limit %f after %d cuts, want %f after %d", info.Limit, info.Cuts, limit, cuts)
	}
}

// TestOnlyWorkThatFailsCutsALimit: each way in which a lease may end, with a hook and without.
func TestOnlyWorkThatFailsCutsALimit(t *testing.T) {
	expires := func(w *world, _ *Delivery) { w.Advance(time.Hour) }
	for name, x := range map[string]struct {
		hook bool
		end  func(w *world, d *Delivery)
		cut  bool
	}{
		"nack":                          {false, func(w *world, d *Delivery) { w.fails(d, "503", false) }, true},
		"nack, and the hook retries":    {true, func(w *world, d *Delivery) { w.fails(d, "503", false) }, true},
		"nack, and the hook says dlq":   {true, func(w *world, d *Delivery) { w.fails(d, "wrong", false) }, false},
		"nack with DEAD":                {false, func(w *world, d *Delivery) { w.fails(d, "503", true) }, false},
		"nack with DEAD, and a hook":    {true, func(w *world, d *Delivery) { w.fails(d, "503", true) }, false},
		"expiry":                        {false, expires, true},
		"expiry, and the hook says dlq": {true, expires, false},
		"nack of the last attempt":      {false, func(w *world, d *Delivery) { w.lastAttempt(); w.fails(d, "503", false) }, true},
		"expiry of the last attempt":    {false, func(w *world, d *Delivery) { w.lastAttempt(); w.Advance(time.Hour) }, true},
		"release": {false, func(w *world, d *Delivery) {
			w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{d.Receipt}); return err })
		}, false},
		"the client has gone": {false, func(w *world, d *Delivery) { w.must(func(tx *Tx) error { return tx.Undeliver([]*Delivery{d}) }) }, false},
		"cancel": {false, func(w *world, d *Delivery) {
			req := &Cancel{Queue: "q", IDs: []ID{d.Receipt.ID}}
			w.must(func(tx *Tx) error { _, err := tx.Cancel(req); return err })
		}, false},
		"purge": {false, func(w *world, _ *Delivery) {
			w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
			w.Do()
		}, false},
		"ack of a limit at its most": {false, func(w *world, d *Delivery) {
			w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
		}, false},
		"nack with a receipt that is over": {false, func(w *world, d *Delivery) {
			w.must(func(tx *Tx) error {
				_, err := tx.Release("q", []Receipt{d.Receipt})
				if err == nil {
					_, err = tx.Nack(&Nack{Queue: "q", Receipt: d.Receipt})
				}
				if errors.Is(err, ErrLeaseLost) {
					return nil
				}
				return err
			})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Scripts = wrongScripts{} })
			w.queue("q", QueueOptions{})
			if x.hook {
				w.must(func(tx *Tx) error { return tx.LoadScript("q", wrongHook{simHook{hook.OnFailure}}, "") })
			}
			w.adaptive(1, 10)
			d := w.calls("q", 1)[0]
			x.end(w, d)
			for range 3 {
				w.Do() // a hook decides after the commit
			}
			if x.cut {
				w.wantLimit(7, 1)
			} else {
				w.wantLimit(10, 0)
			}
			if c := w.counts("q"); c.Leased != 0 {
				t.Errorf("%d leases have not ended", c.Leased)
			}
		})
	}
}

// lastAttempt has messages of the queue q die of their first failure.
func (w *world) lastAttempt() {
	w.t.Helper()
	w.must(func(tx *Tx) error {
		return tx.AlterQueue("q", QueueOptions{Given: queueset.Given{queueset.MaxAttempts: 1}})
	})
}

// TestALimitIsNotOnDisk: a start begins with the concurrency of the setting, which is; a recovery
// in place keeps the limit. Leases from before count for one cut together, also where the clock has
// been set back.
func TestALimitIsNotOnDisk(t *testing.T) {
	for name, back := range map[string]time.Duration{"the clock goes on": 0, "the clock has been set back": time.Hour} {
		t.Run(name, func(t *testing.T) {
			store := storage.NewMemory()
			leaseAtOnce := func(c *Config) { c.LeaseWriteDelay = 0 }
			w := openWorld(t, store, time.Unix(1_700_000_000, 0), leaseAtOnce)
			w.queue("q", QueueOptions{Given: queueset.Given{queueset.MaxAttempts: 0, queueset.Backoff: 0}})
			w.adaptive(2, 10)
			ds := w.calls("q", 10)
			w.Advance(time.Second)
			w.fails(ds[0], "503", false)
			w.wantLimit(7, 1)

			store.FailCommits(storage.ErrReopen)
			if err := w.do(func(tx *Tx) error { return tx.CreateQueue("other", QueueOptions{}) }); !errors.Is(err, ErrMisconf) {
				t.Fatalf("a failing store: %v", err)
			}
			store.FailCommits(nil)
			if err := w.Repair(); err != nil {
				t.Fatal(err)
			}
			w.wantLimit(7, 1)
			w.fails(ds[1], "503", false)
			w.wantLimit(7, 1)

			again := openWorld(t, store.Clone(), w.Now().Add(-back), leaseAtOnce)
			again.wantLimit(10, 0)
			for _, d := range ds[2:6] {
				again.fails(d, "503", false)
			}
			again.wantLimit(7, 1)
			again.Advance(time.Second)
			again.fails(ds[6], "503", false)
			again.wantLimit(7, 1)
			again.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[7].Receipt}); return err })
			again.wantLimit(7, 1) // 3 of 7 were in use
			more := again.lease("q", 10)
			if len(more) != 5 { // and ds[8:]
				t.Fatalf("%d are leased beside two, want 7 together", len(more))
			}
			again.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[8].Receipt}); return err })
			again.wantLimit(7.142857, 1)
			again.fails(more[0], "503", false)
			again.wantLimit(5, 2)
		})
	}
}
