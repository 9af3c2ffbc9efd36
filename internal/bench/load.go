package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/proc"
)

// Load measures one peer in rounds.
type Load struct {
	Peer Peer
	PID  int // process whose usage is reported; 0: none
	// Watch, if not nil, gets the progress of each stage in units of the stage; timed
	// stages count milliseconds.
	Watch func(stage string, done, total int64, timed bool)

	Options Options
	rate    float64 // of the open loop, once it has been determined
}

// Round is the result of one round.
type Round struct {
	Messages int64   `json:"messages"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"rate"`            // messages a second
	Asked    float64 `json:"asked,omitempty"` // the rate of an open loop
	Unsent   int64   `json:"unsent"`          // messages due in an open loop but never sent, because the server did not keep up
	// CPU is the server's CPU time per message in µs, including work after the end of the
	// load.
	CPU  float64 `json:"cpu_us,omitempty"`
	Peak int64   `json:"peak_bytes,omitempty"` // of the server's memory since its start
	// Pause is the longest time without a reply to any session, in ms.
	Pause     float64            `json:"pause_ms"`
	Latency   map[string]Latency `json:"latency"`
	PerSecond []int64            `json:"per_second,omitempty"` // messages in each second
}

// Prepare creates the queue and its backlog.
func (l *Load) Prepare(ctx context.Context) error {
	if err := l.Peer.Prepare(ctx, l.Options.Shape); err != nil {
		return err
	}
	if l.Options.Backlog == 0 {
		return nil
	}
	if err := l.fill(ctx); err != nil {
		return errors.Join(err, l.Clean(ctx))
	}
	return nil
}

// Clean removes the queue, even if ctx has ended.
func (l *Load) Clean(ctx context.Context) error {
	return l.Peer.Clean(context.WithoutCancel(ctx))
}

// Run prepares the queue, measures all rounds and cleans up. The queue is recreated between rounds,
// unless the load keeps the size of its backlog.
func (l *Load) Run(ctx context.Context) ([]Round, error) {
	var rounds []Round
	keeps := l.Options.Workload == Cycle || l.Options.Workload == Wait
	prepared := false
	for i := range l.Options.Rounds {
		if !prepared {
			if err := l.Prepare(ctx); err != nil {
				return nil, err
			}
			prepared = true
		}
		r, err := l.Round(ctx, fmt.Sprintf("round %d of %d", i+1, l.Options.Rounds))
		if err != nil {
			return nil, errors.Join(err, l.Clean(ctx))
		}
		rounds = append(rounds, r)
		if !keeps || i+1 == l.Options.Rounds {
			if err := l.Clean(ctx); err != nil {
				return nil, err
			}
			prepared = false
		}
	}
	return rounds, nil
}

// Round measures one round on the prepared queue.
func (l *Load) Round(ctx context.Context, name string) (Round, error) {
	if l.Options.Workload == Drain {
		return l.drain(ctx, name)
	}
	if l.rate == 0 {
		l.rate = l.Options.Rate.PerSecond
	}
	if share := l.Options.Rate.Share; share > 0 && l.rate == 0 {
		most, err := l.timed(ctx, "the greatest rate", min(l.Options.Duration, calibration), 0)
		if err != nil {
			return Round{}, err
		}
		l.rate = share * most.Rate
	}
	return l.timed(ctx, name, l.Options.Duration, l.rate)
}

// calibration is the duration of the measurement of the greatest rate.
const calibration = 10 * time.Second

// crew is the set of sessions of a stage, each with a goroutine.
type crew struct {
	sessions []Session
	group    sync.WaitGroup
	failed   chan error
	release  func() bool // of the context
}

// gather opens n sessions, or none after an error. They are closed when ctx ends.
func (l *Load) gather(ctx context.Context, n int) (*crew, error) {
	c := &crew{failed: make(chan error, n)}
	c.release = func() bool { return true }
	for range n {
		s, err := l.Peer.Connect(ctx)
		if err != nil {
			c.close()
			return nil, err
		}
		c.sessions = append(c.sessions, s)
	}
	c.release = context.AfterFunc(ctx, c.close)
	return c, nil
}

// work runs f in the sessions' goroutines. The first error ends the stage.
func (c *crew) work(sessions []Session, do func(Session) error) {
	for _, s := range sessions {
		c.group.Go(func() {
			if err := do(s); err != nil {
				c.failed <- err
			}
			_ = s.Close() // its leased messages become available to the other sessions
		})
	}
}

// wait waits until all sessions have ended or one has failed.
func (c *crew) wait() error {
	all := make(chan struct{})
	go func() { c.group.Wait(); close(all) }()
	select {
	case <-all:
	case err := <-c.failed:
		c.close()
		<-all
		return err
	}
	select {
	case err := <-c.failed:
		return err
	default:
		return nil
	}
}

func (c *crew) close() {
	for _, s := range c.sessions {
		_ = s.Close() // the stage is over
	}
}

func (c *crew) dismiss() {
	c.release()
	c.close()
}

// fill enqueues the backlog.
func (l *Load) fill(ctx context.Context) error {
	const batch = 200
	c, err := l.gather(ctx, min(l.Options.Conns, 16))
	if err != nil {
		return err
	}
	defer c.dismiss()
	var claimed, done atomic.Int64
	total := l.Options.Backlog
	c.work(c.sessions, func(s Session) error {
		for {
			first := claimed.Add(batch) - batch
			if first >= total {
				return nil
			}
			n := min(batch, total-first)
			if err := s.Enqueue(int(n)); err != nil {
				return err
			}
			done.Add(n)
		}
	})
	stop := l.follow("backlog", total, &done)
	defer stop()
	return ended(ctx, c.wait())
}

// follow reports the progress of a stage until it is stopped.
func (l *Load) follow(stage string, total int64, done *atomic.Int64) (stop func()) {
	if l.Watch == nil {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(watchEach)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.Watch(stage, done.Load(), total, false)
			case <-quit:
				l.Watch(stage, done.Load(), total, false)
				return
			}
		}
	}()
	return func() { close(quit); <-gone }
}

const watchEach = 100 * time.Millisecond

// ended returns the reason why sessions were closed in preference to the errors that this causes.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// drain leases and acks the backlog.
func (l *Load) drain(ctx context.Context, name string) (Round, error) {
	c, err := l.gather(ctx, l.Options.Conns)
	if err != nil {
		return Round{}, err
	}
	defer c.dismiss()
	m := newMeter()
	var claimed atomic.Int64
	total, batch := l.Options.Backlog, int64(l.Options.Pipeline)
	account := Open(l.PID)
	m.start()
	c.work(c.sessions, func(s Session) error {
		for {
			first := claimed.Add(batch) - batch
			if first >= total {
				return nil
			}
			n := min(batch, total-first)
			begun := m.now()
			if err := s.Lease(int(n)); err != nil {
				return err
			}
			leased := m.answered("lease", begun)
			if err := s.Ack(); err != nil {
				return err
			}
			m.answered("ack", leased)
			m.done.Add(n)
		}
	})
	stop := l.follow(name, total, &m.done)
	err = c.wait()
	took := m.now()
	stop()
	if err := ended(ctx, err); err != nil {
		return Round{}, err
	}
	r := m.round(total, took)
	account.Charge(&r, total)
	return r, nil
}

// round returns the results of the meter.
func (m *meter) round(messages int64, took time.Duration) Round {
	return Round{
		Messages: messages, Seconds: took.Seconds(), Rate: float64(messages) / took.Seconds(),
		Pause: float64(m.gap.Load()) / 1e6, Latency: m.latencies(),
	}
}

// Account is the resource usage of a server at the start of a round.
type Account struct {
	pid    int
	before proc.Use
}

// Open starts an account of a process and its descendants; with pid 0, nothing is charged.
func Open(pid int) Account { return Account{pid: pid, before: use(pid)} }

// use returns the current usage, zero if it is unknown.
func use(pid int) proc.Use {
	if pid == 0 {
		return proc.Use{}
	}
	u, err := proc.TreeOf(pid)
	if err != nil {
		return proc.Use{} // the process has ended, which the load reports, or the usage is not available
	}
	return u
}

// A server has settled if it uses less CPU than this. The wait is bounded.
const (
	settledLook  = 200 * time.Millisecond
	settledShare = 0.1
	settledMax   = 5 * time.Second
)

// Charge waits until the server has finished the work that the load has caused, and stores its usage per
// message in the round.
func (a Account) Charge(r *Round, messages int64) {
	if a.pid == 0 || messages == 0 {
		return
	}
	u := settle(nil, a.pid, settledMax)
	r.CPU = float64((u.CPU - a.before.CPU).Microseconds()) / float64(messages)
	r.Peak = u.Peak
}

// Settle waits until a server is idle again, as after its queue was filled, but no longer than atMost. It
// fails only when ctx ends.
func Settle(ctx context.Context, pid int, atMost time.Duration) error {
	if pid != 0 {
		settle(ctx.Done(), pid, atMost)
	}
	return ended(ctx, nil)
}

// settle waits until a process is idle, until atMost has passed or the channel is closed. It returns the
// usage until then.
func settle(stop <-chan struct{}, pid int, atMost time.Duration) proc.Use {
	u := use(pid)
	for since := time.Now(); time.Since(since) < atMost; {
		select {
		case <-stop:
			return u
		case <-time.After(settledLook):
		}
		next := use(pid)
		busy := next.CPU - u.CPU
		u = next
		if busy.Seconds() < settledShare*settledLook.Seconds() {
			break
		}
	}
	return u
}
