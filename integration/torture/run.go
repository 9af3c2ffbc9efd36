package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/faisca/fila/integration/history"
	"github.com/faisca/fila/internal/progress"
)

const (
	patience = 3 * time.Minute // for what must happen; only a run that fails reaches it

	// Without a delivery for so long, while so many calls were answered, the queues count as drained. Of a
	// broker that gets no processor, time alone says nothing.
	drainQuiet   = 10 * time.Second
	drainAnswers = 500
)

// target is what is tortured: a broker, or the nodes of a cluster.
type target interface {
	// prepare starts it below a directory, sets the addresses to which clients connect, and
	// creates the queues.
	prepare(dir string) error
	// harm does one thing to it, and returns when it serves again.
	harm() error
	// finish completes the history when all clients have ended.
	finish(h *history.History) error
	// report prints what is special to the target.
	report(v *history.Verdict)
	close()
}

// brokenError is a promise that was broken before the history could be judged.
type brokenError struct{ history.Breach }

func (e brokenError) Error() string { return e.Breach.String() }

// session is one run.
type session struct {
	options
	shared  *shared
	target  target
	chance  *rand.Rand
	history history.History
	clients []*client
}

// run tortures a broker and reports whether it kept its promises. An error means that there is no
// verdict.
func run(ctx context.Context, o options) (ok bool, err error) {
	mode, err := o.mode()
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "fila-torture-")
	if err != nil {
		return false, err
	}
	defer func() {
		if o.keep || err != nil || !ok {
			fmt.Printf("the broker's directory is kept: %s\n", dir)
			return
		}
		_ = os.RemoveAll(dir) // in the system's temporary directory
	}()
	s := &session{options: o, chance: rand.New(rand.NewPCG(o.seed, 0))}
	s.shared = &shared{
		clock: clock{time.Now()}, options: o, strange: map[string]int{},
		fresh: make(chan subject, subjects), ending: make(chan subject, subjects),
	}
	if s.target, err = s.newTarget(); err != nil {
		return false, err
	}
	fmt.Printf("seed %d: %v of torture by %s, storage.sync %s\n", o.seed, o.length, s.by, o.sync)
	defer s.target.close()
	if err = s.target.prepare(dir); err == nil {
		err = s.play(ctx)
	}
	if err != nil {
		if b, broken := errors.AsType[brokenError](err); broken {
			fmt.Printf("BROKEN %s\nverdict: BROKEN (seed %d)\n", b.Breach, s.seed)
			return false, nil
		}
		return false, err
	}
	v := history.Check(&s.history, history.Rules{
		Sync: mode, Interval: o.interval, LeaseLag: o.leaseLag, Late: 500 * time.Millisecond, Skew: 20 * time.Millisecond,
		DedupWindow: dedupWindow, Unordered: map[string]bool{fickle: true}, Ordered: map[string]bool{serial: true}, Nodes: o.nodes > 1,
	})
	return s.report(v), nil
}

// newTarget returns what the options ask for.
func (s *session) newTarget() (target, error) {
	switch s.nodes {
	case 1:
		if s.by == "" {
			s.by = byKill
		}
		return &single{session: s}, nil
	case 3, 5:
		return newNodes(s)
	}
	return nil, fmt.Errorf("-nodes %d: want 1, 3 or 5", s.nodes)
}

// queues creates the queues.
func (s *session) queues() error {
	c := s.shared.client(0)
	defer c.redis.Close()
	for q, more := range map[string][]any{steady: nil, fickle: {"TTL", fickleTTL.Milliseconds()}, serial: {"ORDERED", "ON"}, tight: {"MAXDEPTH", tightDepth}} {
		args := append([]any{
			"FILA.QUEUE", "CREATE", q, "VISIBILITY", visibility.Milliseconds(), "BACKOFF", 10, "MAXATTEMPTS", 1_000_000,
			"DEDUPWINDOW", dedupWindow.Milliseconds(),
		}, more...)
		if err := c.redis.Do(context.Background(), args...).Err(); err != nil {
			return err
		}
	}
	for _, words := range bindings() {
		if err := c.redis.Do(context.Background(), append([]any{"FILA.TOPIC", "BIND"}, words...)...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// play executes the run without judging it.
func (s *session) play(ctx context.Context) error {
	producing, stopProducing := context.WithCancel(ctx)
	consuming, stopConsuming := context.WithCancel(context.Background())
	var producers, consumers sync.WaitGroup
	defer func() { stopProducing(); producers.Wait(); stopConsuming(); consumers.Wait() }()
	for i := range s.producers {
		c := s.shared.client(1 + i)
		s.clients = append(s.clients, c)
		producers.Go(func() { c.produce(producing, i) })
	}
	for i := range s.consumers {
		c := s.shared.client(1000 + i)
		s.clients = append(s.clients, c)
		consumers.Go(func() { c.consume(consuming, i) })
	}
	for i := range s.askers {
		c := s.shared.client(2000 + i)
		s.clients = append(s.clients, c)
		consumers.Go(func() { c.ask(consuming) })
	}
	if err := s.torture(ctx); err != nil {
		return err
	}
	stopProducing()
	producers.Wait()
	s.shared.draining.Store(true)
	if err := s.drain(); err != nil {
		return err
	}
	stopConsuming()
	consumers.Wait()
	for _, c := range s.clients {
		s.history.Add(&c.Log)
	}
	return s.target.finish(&s.history)
}

// torture harms the broker at random moments until the time is over.
func (s *session) torture(ctx context.Context) error {
	bar := progress.New(os.Stdout, "torture", int64(s.length.Seconds()))
	defer bar.Done()
	begun := time.Now()
	for done := 0; time.Since(begun) < s.length && (s.harms == 0 || done < s.harms) && !s.delivered() && ctx.Err() == nil; done++ {
		moment := time.Now().Add(time.Duration((0.1 + 1.8*s.chance.Float64()) * float64(s.calm)))
		enough, end := s.shared.progress.Load()+int64(s.work), time.Now().Add(patience)
		for (time.Now().Before(moment) || s.shared.progress.Load() < enough && time.Now().Before(end)) && ctx.Err() == nil {
			pause(min(200*time.Millisecond, max(time.Until(moment), 5*time.Millisecond)))
			bar.Set(int64(time.Since(begun).Seconds()))
		}
		if err := s.target.harm(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// delivered reports whether the ordered queue has made as many deliveries as were asked for.
func (s *session) delivered() bool {
	return s.deliveries > 0 && s.shared.ordered.Load() >= int64(s.deliveries)
}

// drain waits until the consumers have emptied the queues, and records what is left when deliveries
// stop.
func (s *session) drain() error {
	c := s.shared.client(0)
	defer c.redis.Close()
	last, quiet, answers := s.shared.progress.Load(), time.Now(), s.shared.answers.Load()
	for end := time.Now().Add(patience); ; pause(20 * time.Millisecond) {
		reply, err := c.redis.Do(context.Background(), "FILA.STATS").Result()
		if err != nil && time.Now().Before(end) {
			continue
		}
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		s.history.Left = 0
		for _, name := range []string{"ready", "delayed", "leased", "dead"} {
			n, ok := field(reply, name).(int64)
			if !ok {
				return errors.New("stats without " + name)
			}
			s.history.Left += n
		}
		if s.history.Left == 0 && field(reply, "counting") == int64(0) {
			return nil
		}
		if now := s.shared.progress.Load(); now != last {
			last, quiet, answers = now, time.Now(), s.shared.answers.Load()
			end = quiet.Add(patience)
		}
		if q := time.Since(quiet); q > patience || q > drainQuiet && s.shared.answers.Load()-answers > drainAnswers {
			return nil
		}
	}
}

// report prints the counts and the verdict.
func (s *session) report(v *history.Verdict) bool {
	fmt.Printf("%d crashes; %d enqueues answered, %d not, %d deduplicated; %d deliveries; %d acks and %d other ends honoured\n",
		len(s.history.Crashes), v.Enqueued, v.Unanswered, v.Deduplicated, v.Deliveries, v.Acked, v.Ended-v.Acked)
	fmt.Printf("%d publishes answered, with %d copies; %d deliveries of the ordered queue, %d of them not acked; %d results asked for, %d done and %d dead, %d of these while the client waited\n",
		v.Published, v.Copies, v.Ordered, v.Failed, v.Asked, v.SaidDone, v.SaidDead, v.Waited)
	s.target.report(v)
	ok := v.OK() && len(s.shared.strange) == 0
	for _, b := range v.Breaches {
		fmt.Printf("BROKEN %s\n", b)
	}
	for rule, n := range v.Counts {
		fmt.Printf("broken %d times: %s\n", n, rule)
	}
	var strange []string
	for what, n := range s.shared.strange {
		strange = append(strange, fmt.Sprintf("BROKEN unexpected reply, %d times: %s", n, what))
	}
	slices.Sort(strange)
	for _, line := range strange {
		fmt.Println(line)
	}
	if ok {
		fmt.Println("verdict: every promise was kept")
	} else {
		fmt.Printf("verdict: BROKEN (seed %d)\n", s.seed)
	}
	return ok
}
