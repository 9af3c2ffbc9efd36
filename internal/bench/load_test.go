package bench

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// desk is a peer in memory: it counts, and can make all sessions wait.
type desk struct {
	failAt  int // this enqueue fails; 0: none
	pauseAt int // at this one all sessions wait
	pause   time.Duration

	mu                sync.Mutex
	ready             int
	enqueued, acked   int
	prepared, cleaned int
	sessions          int
	atOnce            int // the most enqueued at once
}

func (*desk) Name() string { return "desk" }

func (d *desk) Prepare(context.Context, Shape) error { d.prepared++; return nil }

func (d *desk) Clean(context.Context) error { d.cleaned++; d.ready = 0; return nil }

func (d *desk) Connect(context.Context) (Session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions++
	return &clerk{desk: d}, nil
}

type clerk struct {
	desk  *desk
	taken int
}

func (c *clerk) Enqueue(n int) error {
	d := c.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.enqueued
	d.enqueued += n
	d.ready += n
	d.atOnce = max(d.atOnce, n)
	if d.failAt > 0 && d.enqueued >= d.failAt {
		return errors.New("the desk is on fire")
	}
	if before < d.pauseAt && d.enqueued >= d.pauseAt {
		<-time.After(d.pause)
	}
	return nil
}

func (c *clerk) Lease(n int) error {
	c.desk.mu.Lock()
	defer c.desk.mu.Unlock()
	if c.desk.ready < n {
		return errors.New("there is not enough")
	}
	c.desk.ready -= n
	c.taken += n
	return nil
}

func (c *clerk) Ack() error {
	c.desk.mu.Lock()
	defer c.desk.mu.Unlock()
	c.desk.acked += c.taken
	c.taken = 0
	return nil
}

func (*clerk) Close() error { return nil }

func options(w Workload) Options {
	return Options{
		Workload: w, Shape: Shape{Queue: "q", Payload: 64}, Conns: 4, Pipeline: 8,
		Duration: 200 * time.Millisecond, Warmup: 10 * time.Millisecond, Rounds: 2,
	}
}

func TestACycleTakesEveryMessageThroughItsLife(t *testing.T) {
	d := &desk{}
	rounds, err := (&Load{Peer: d, Options: options(Cycle)}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(rounds) != 2 || d.enqueued == 0 || d.acked != d.enqueued || d.atOnce != 8 {
		t.Errorf("%d rounds, %d enqueued by %d, %d acked", len(rounds), d.enqueued, d.atOnce, d.acked)
	}
	if d.prepared != 1 || d.cleaned != 1 || d.sessions != 8 {
		t.Errorf("prepared %d times, cleaned %d times, %d sessions", d.prepared, d.cleaned, d.sessions)
	}
	for _, r := range rounds {
		l := r.Latency["cycle"]
		if r.Messages == 0 || l.Count == 0 || l.P50 > l.P99 || l.P99 > l.Max || r.Rate <= 0 {
			t.Errorf("figures that cannot be: %+v", r)
		}
	}
}

func TestDrainingAcksTheWholeBacklogAndNoMore(t *testing.T) {
	d := &desk{}
	o := options(Drain)
	o.Backlog = 1003
	rounds, err := (&Load{Peer: d, Options: o}).Run(t.Context())
	if err != nil || d.acked != 2*1003 || d.enqueued != 2*1003 || rounds[1].Messages != 1003 {
		t.Errorf("acked %d of %d, %v", d.acked, d.enqueued, err)
	}
}

func TestABacklogStaysWhileCyclesPass(t *testing.T) {
	d := &desk{}
	o := options(Cycle)
	o.Backlog = 500
	l := &Load{Peer: d, Options: o}
	if err := l.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Round(t.Context(), "once"); err != nil {
		t.Fatal(err)
	}
	if d.ready != 500 {
		t.Errorf("%d are left of 500", d.ready)
	}
}

func TestAServerThatIsIdleHasSettled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if err := Settle(ctx, 1<<22, time.Hour); err != nil { // no process has this id
		t.Error(err)
	}
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		for x := 0; ; x++ {
			select {
			case <-quit:
				return
			default:
			}
		}
	}()
	if err := Settle(ctx, os.Getpid(), 10*time.Millisecond); err != nil { // although the process is busy
		t.Errorf("busy: %v", err)
	}
	cancel()
	if err := Settle(ctx, os.Getpid(), time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// What a pause keeps waiting is not one batch: it is all that were due meanwhile.
func TestAPauseCountsForAllThatWereDueInIt(t *testing.T) {
	const pause = 300 * time.Millisecond
	d := &desk{pauseAt: 50 * 8, pause: pause}
	o := options(Cycle)
	o.Rate = Rate{PerSecond: 8000} // 1000 batches a second
	o.Duration, o.Warmup, o.Rounds = time.Second, 0, 1
	rounds, err := (&Load{Peer: d, Options: o}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// 300 of at most 1000 batches were due in the pause; a tenth of all has waited for
	// more than a third of it.
	if l := rounds[0].Latency["cycle"]; l.P90 < 100 || l.Max < 300 || rounds[0].Pause < 300 {
		t.Errorf("p90 %.1f ms, max %.1f ms, pause %.1f ms: the pause was %s", l.P90, l.Max, rounds[0].Pause, pause)
	}
}

func TestAShareIsOfTheGreatestRate(t *testing.T) {
	d := &desk{}
	o := options(Enqueue)
	o.Rate, o.Rounds = Rate{Share: 0.01}, 1
	l := &Load{Peer: d, Options: o}
	rounds, err := l.Run(t.Context())
	if err != nil || rounds[0].Asked == 0 || rounds[0].Asked != l.rate {
		t.Errorf("asked %f, %v", rounds[0].Asked, err)
	}
}

func TestALoadThatFailsSaysWhyAndCleansUp(t *testing.T) {
	for _, w := range []Workload{Cycle, Enqueue} {
		d := &desk{failAt: 100}
		_, err := (&Load{Peer: d, Options: options(w)}).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "on fire") || d.cleaned != 1 {
			t.Errorf("%s: %v, cleaned %d times", w, err, d.cleaned)
		}
	}
	d := &desk{}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	if _, err := (&Load{Peer: d, Options: options(Cycle)}).Run(ctx); !errors.Is(err, reason) || d.cleaned != 1 {
		t.Errorf("stopped: %v, cleaned %d times", err, d.cleaned)
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"connections":  func(o *Options) { o.Conns = 0 },
		"pipeline":     func(o *Options) { o.Pipeline = 1001 },
		"payload":      func(o *Options) { o.Shape.Payload = 16<<20 + 1 },
		"round":        func(o *Options) { o.Duration = time.Millisecond },
		"at least one": func(o *Options) { o.Rounds = 0 },
		"negative":     func(o *Options) { o.Backlog = -1 },
		"backlog":      func(o *Options) { o.Workload = Drain },
		"tell":         func(o *Options) { o.Workload, o.Shape.Payload = Wait, 7 },
		"empty queue":  func(o *Options) { o.Workload, o.Backlog = Wait, 1 },
	} {
		o := options(Cycle)
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []string{"x", "-1", "0%", "101%", "%", "1e12", "NaN"} {
		if r, err := ParseRate(s); err == nil {
			t.Errorf("%q is %+v", s, r)
		}
	}
	if r, err := ParseRate("70%"); err != nil || r.Share != 0.7 {
		t.Errorf("70%% is %+v, %v", r, err)
	}
}

// A server that completes nothing in the last round has had latencies in the others.
func TestMediansAreOfTheRoundsThatHaveALatency(t *testing.T) {
	with := func(p50 float64) Round {
		return Round{Rate: 1, Latency: map[string]Latency{"cycle": {Count: int64(p50), P50: p50, Max: 2 * p50}}}
	}
	r := NewReport("", "", &Options{Workload: Cycle}, []Round{with(3), with(1), with(2), {}, {}})
	if l := r.Median.Latency["cycle"]; l.P50 != 2 || l.Max != 4 || l.Count != 2 || r.Median.Rate != 1 {
		t.Errorf("got %+v", r.Median)
	}
}
