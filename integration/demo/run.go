package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/progress"
)

// enqueuers is the number of goroutines that enqueue.
const enqueuers = 4

// show is one run: the broker and its clients. The enqueuers, the workers and the kills run
// concurrently and report to follow, which alone keeps the counts.
type show struct {
	options
	tree    *tree
	broker  *harness.Broker
	client  *redis.Client
	answers chan answer
	results chan result
	failed  chan error    // the first failure
	back    chan struct{} // the broker is ready again after a kill
}

// answer is the result of a pipeline of enqueues.
type answer struct {
	enqueued int // answered enqueues
	again    int // unanswered enqueues, to be sent again
}

func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	begun := time.Now()
	t, err := walk(o.tree)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fila-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := harness.New(o.bin, dir)
	if err != nil {
		return err
	}
	defer func() { _ = b.Kill() }() // it only runs after a failure
	s := &show{
		options: o, tree: t, broker: b, client: client(b.Addr()),
		answers: make(chan answer), results: make(chan result), failed: make(chan error, 1), back: make(chan struct{}),
	}
	defer s.client.Close()
	report, err := s.play(ctx)
	if err != nil {
		return err
	}
	sums, err := sha256sums(ctx, t.files)
	if err != nil {
		return err
	}
	report.took = time.Since(begun)
	report.compare(sums)
	report.write(os.Stdout)
	return report.verdict()
}

// play runs the enqueuers and the workers until all work is done.
func (s *show) play(ctx context.Context) (*report, error) {
	if err := s.broker.Start(); err != nil {
		return nil, err
	}
	if err := s.broker.Ready(ctx); err != nil {
		return nil, err
	}
	// Messages leased by a reply that a kill prevented are delivered again when the lease expires,
	// so a short lease shortens the run.
	err := s.client.Do(ctx, "FILA.QUEUE", "CREATE", queue, "VISIBILITY", 2000, "BACKOFF", 0, "NODLQ", "MAXATTEMPTS", 1000).Err()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for files := range slices.Chunk(s.tree.files, len(s.tree.files)/enqueuers+1) {
		all.Go(func() {
			s.fail(enqueue(ctx, s.client, s.options.tree, files, func(a answer) { send(ctx, s.answers, a) }))
		})
	}
	for i := range s.workers {
		all.Go(func() { s.fail(s.worker(ctx, fmt.Sprintf("worker-%d", i+1))) })
	}
	r, err := s.follow(ctx, &all)
	if err != nil {
		return nil, err
	}
	return r, s.broker.Stop()
}

// follow counts results, has the broker killed at the right moments, and returns when every file is
// enqueued and has a result, and the queue is empty.
func (s *show) follow(ctx context.Context, all *sync.WaitGroup) (*report, error) {
	r := &report{tree: s.tree, workers: s.workers, found: map[string][]result{}}
	total := len(s.tree.files)
	bar := progress.New(os.Stderr, "hashing", int64(total))
	defer bar.Done()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	enqueued, up := 0, true
	for {
		select {
		case a := <-s.answers:
			enqueued += a.enqueued
			r.again += a.again
		case x := <-s.results:
			path := string(x.Path)
			if !s.tree.has(path) {
				return nil, fmt.Errorf("a worker received %q, which was never enqueued", path)
			}
			r.found[path] = append(r.found[path], x)
			bar.Set(int64(len(r.found)))
		case err := <-s.failed:
			return nil, err
		case <-s.back:
			up = true
		case <-tick.C:
			if up && r.kills == s.kills && enqueued == total && len(r.found) == total && s.empty(ctx) {
				return r, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d files were enqueued and %d hashed: %w", enqueued, total, len(r.found), ctx.Err())
		}
		// The kills are spread evenly over enqueueing and hashing.
		if up && r.kills < s.kills && (enqueued+len(r.found))*(s.kills+1) >= 2*total*(r.kills+1) {
			r.kills++
			up = false
			bar.Note("kill -9 of the broker, with %d of %d files enqueued and %d hashed", enqueued, total, len(r.found))
			all.Go(func() { s.fail(s.kill(ctx)) })
		}
	}
}

// kill kills the broker and restarts it on its data.
func (s *show) kill(ctx context.Context) error {
	if err := s.broker.Kill(); err != nil {
		return err
	}
	if err := s.broker.Start(); err != nil {
		return err
	}
	if err := s.broker.Ready(ctx); err != nil {
		return err
	}
	send(ctx, s.back, struct{}{})
	return nil
}

// empty reports whether the broker holds no message.
func (s *show) empty(ctx context.Context) bool {
	stats, err := s.client.Do(ctx, "FILA.STATS", queue).Result()
	if err != nil {
		return false
	}
	m, ok := stats.(map[any]any)
	if !ok || m["counting"] != int64(0) {
		return false
	}
	return m["ready"] == int64(0) && m["delayed"] == int64(0) && m["leased"] == int64(0)
}

// fail keeps the first failure; later ones are consequences.
func (s *show) fail(err error) {
	if err == nil {
		return
	}
	select {
	case s.failed <- err:
	default:
	}
}

// send sends v unless the run is over.
func send[T any](ctx context.Context, to chan<- T, v T) {
	select {
	case to <- v:
	case <-ctx.Done():
	}
}
