package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/history"
	"github.com/faisca/fila/integration/powerloss"
	"github.com/faisca/fila/internal/progress"
)

const (
	patience   = 30 * time.Second // for a start
	drainQuiet = 10 * time.Second // without a delivery the queues count as drained
)

// session is one run.
type session struct {
	options
	shared  *shared
	broker  *harness.Broker
	disk    *powerloss.Disk // if power cuts are requested, else nil
	fault   diskFault       // nil if the process is ended instead
	chance  *rand.Rand
	history history.History
	clients []*client
	loss    powerloss.Loss // sum of all cuts
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
	fmt.Printf("seed %d: %v of torture by %s, storage.sync %s\n", o.seed, o.length, o.by, o.sync)
	s := &session{options: o, chance: rand.New(rand.NewPCG(o.seed, 0))}
	s.shared = &shared{clock: clock{time.Now()}, options: o, strange: map[string]int{}}
	defer s.close()
	if err := s.prepare(dir); err != nil {
		return false, err
	}
	if err := s.play(ctx); err != nil {
		return false, err
	}
	v := history.Check(&s.history, history.Rules{
		Sync: mode, Interval: o.interval, LeaseLag: o.leaseLag, Late: 500 * time.Millisecond, Skew: 20 * time.Millisecond,
		DedupWindow: dedupWindow, Unordered: map[string]bool{fickle: true},
	})
	return s.report(v), nil
}

// close ends the broker, in whatever state it is, and its disk.
func (s *session) close() {
	if s.broker != nil {
		_ = s.broker.Kill()
	}
	if s.fault != nil {
		_ = s.fault.Close()
	}
}

// prepare creates the broker and its queues.
func (s *session) prepare(dir string) error {
	home := dir
	if s.by == byFull {
		home = filepath.Join(dir, "small")
		small, err := newSmall(home)
		if err != nil {
			return err
		}
		s.fault = small
	}
	var err error
	s.broker, err = harness.New(s.bin, home, "--storage.sync", s.sync, "--storage.sync_interval_ms", fmt.Sprint(s.interval.Milliseconds()),
		"--storage.lease_lag_ms", fmt.Sprint(s.leaseLag.Milliseconds()), "--storage.mode", "low_space")
	if err != nil {
		return err
	}
	s.shared.addr = s.broker.Addr()
	switch s.by {
	case byKill, byFull:
	case byPower, byIOError, byNoSpace:
		disk, err := powerloss.New(dir, filepath.Clean(s.broker.Data()))
		if err != nil {
			return err
		}
		s.broker.SetEnv(disk.Env()...)
		switch s.by {
		case byPower:
			s.disk, disk.Scatter = disk, s.scatter
		case byIOError:
			s.fault = &injected{disk, disk.Break}
		case byNoSpace:
			s.fault = &injected{disk, disk.Fill}
		}
	default:
		return fmt.Errorf("-by %s: unknown fault; see -help", s.by)
	}
	if err := s.start(); err != nil {
		return err
	}
	c := s.shared.client(0)
	defer c.redis.Close()
	for q, more := range map[string][]any{steady: {"DEDUPWINDOW", dedupWindow.Milliseconds()}, fickle: {"TTL", fickleTTL.Milliseconds()}} {
		args := append([]any{"FILA.QUEUE", "CREATE", q, "VISIBILITY", visibility.Milliseconds(), "BACKOFF", 10, "MAXATTEMPTS", 1_000_000}, more...)
		if err := c.redis.Do(context.Background(), args...).Err(); err != nil {
			return err
		}
	}
	// With lazy syncs the first power cut could take the queues.
	if s.by == byPower && s.sync != "always" {
		if err := s.broker.Stop(); err != nil {
			return err
		}
		return s.start()
	}
	return nil
}

func (s *session) start() error {
	if err := s.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.broker.Ready(ctx)
}

// launch starts the process without waiting until it serves.
func (s *session) launch() error {
	if s.disk != nil {
		if err := s.disk.Begin(); err != nil {
			return err
		}
	}
	if s.fault != nil {
		if err := s.fault.Begin(); err != nil {
			return err
		}
	}
	return s.broker.Start()
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
	return nil
}

// torture crashes the broker at random moments until the time is over.
func (s *session) torture(ctx context.Context) error {
	bar := progress.New(os.Stdout, "torture", int64(s.length.Seconds()))
	defer bar.Done()
	begun := time.Now()
	for time.Since(begun) < s.length && ctx.Err() == nil {
		moment := time.Now().Add(time.Duration((0.1 + 1.8*s.chance.Float64()) * float64(s.calm)))
		for time.Now().Before(moment) && ctx.Err() == nil {
			pause(min(200*time.Millisecond, max(time.Until(moment), time.Millisecond)))
			bar.Set(int64(time.Since(begun).Seconds()))
		}
		happens := s.crash
		if s.fault != nil {
			happens = s.fail
		}
		if err := happens(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// crash ends the broker, sometimes again during recovery, and starts it.
func (s *session) crash() error {
	cut := history.Crash{At: s.shared.now(), Power: s.by == byPower}
	for again := true; again; {
		if err := s.end(); err != nil {
			return err
		}
		if again = s.chance.IntN(5) == 0; again {
			if err := s.launch(); err != nil {
				return err
			}
			pause(time.Duration(s.chance.IntN(120)) * time.Millisecond)
		}
	}
	if err := s.start(); err != nil {
		return fmt.Errorf("after crash %d: %w", len(s.history.Crashes)+1, err)
	}
	cut.Back = s.shared.now()
	s.history.Crashes = append(s.history.Crashes, cut)
	return nil
}

func (s *session) end() error {
	if err := s.broker.Kill(); err != nil || s.disk == nil {
		return err
	}
	loss, err := s.disk.Cut(s.chance)
	s.loss.Bytes += loss.Bytes
	s.loss.Entries += loss.Entries
	s.loss.Torn += loss.Torn
	return err
}

// drain waits until the consumers have emptied the queues, and records what is left when deliveries
// stop.
func (s *session) drain() error {
	c := s.shared.client(0)
	defer c.redis.Close()
	for last, quiet := s.shared.progress.Load(), time.Now(); ; pause(20 * time.Millisecond) {
		reply, err := c.redis.Do(context.Background(), "FILA.STATS").Result()
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
			last, quiet = now, time.Now()
		}
		if time.Since(quiet) > drainQuiet {
			return nil
		}
	}
}

// report prints the counts and the verdict.
func (s *session) report(v *history.Verdict) bool {
	fmt.Printf("%d crashes; %d enqueues answered, %d not, %d deduplicated; %d deliveries; %d acks and %d other ends honoured\n",
		len(s.history.Crashes), v.Enqueued, v.Unanswered, v.Deduplicated, v.Deliveries, v.Acked, v.Ended-v.Acked)
	if s.disk != nil {
		fmt.Printf("the cuts took %d bytes and %d changes of the directory, and tore %d files; %d acknowledged messages went with them, as storage.sync %s allows\n",
			s.loss.Bytes, s.loss.Entries, s.loss.Torn, v.Excused, s.sync)
	}
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
