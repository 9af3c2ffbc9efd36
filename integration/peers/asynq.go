package main

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/faisca/fila/internal/bench"
)

// asynqs is asynq on a Redis. It enqueues and fetches one task at a time; one goroutine per task
// enqueues a batch. Its servers hand tasks to the sessions, whose ack ends the handler.
type asynqs struct {
	addr    string
	workers int // tasks in flight
	shape   bench.Shape
	noise   bench.Noise
	servers []*asynq.Server
	handed  chan handed
}

// handed is a task whose handler waits for done.
type handed struct{ done chan struct{} }

// asynqServers is the number of servers, each of which fetches one task after the other.
const asynqServers = 8

func (*asynqs) Name() string { return "asynq" }

func (a *asynqs) redis() asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Addr: a.addr, PoolSize: a.workers}
}

func (a *asynqs) Prepare(_ context.Context, s bench.Shape) error {
	a.shape, a.noise = s, bench.NewNoise(s.Payload)
	a.handed = make(chan handed)
	a.servers = nil
	for range asynqServers {
		server := asynq.NewServer(a.redis(), asynq.Config{
			Concurrency: max(1, a.workers/asynqServers), Queues: map[string]int{s.Queue: 1}, LogLevel: asynq.FatalLevel,
			TaskCheckInterval: 100 * time.Millisecond, ShutdownTimeout: time.Second,
		})
		if err := server.Start(asynq.HandlerFunc(a.handle)); err != nil {
			return err
		}
		a.servers = append(a.servers, server)
	}
	return nil
}

func (a *asynqs) handle(ctx context.Context, _ *asynq.Task) error {
	h := handed{done: make(chan struct{})}
	select {
	case a.handed <- h:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *asynqs) Clean(context.Context) error {
	for _, s := range a.servers {
		s.Shutdown()
	}
	i := asynq.NewInspector(a.redis())
	defer i.Close()
	return i.DeleteQueue(a.shape.Queue, true)
}

func (a *asynqs) Connect(ctx context.Context) (bench.Session, error) {
	return &asynqSession{ctx: ctx, all: a, client: asynq.NewClient(a.redis())}, nil
}

type asynqSession struct {
	ctx    context.Context //nolint:containedctx // ends the session's calls with the load
	all    *asynqs
	client *asynq.Client
	at     uint64
	taken  []handed
}

func (s *asynqSession) Enqueue(n int) error {
	var group sync.WaitGroup
	failed := make(chan error, n)
	for range n {
		s.at++
		task := asynq.NewTask("bench", s.all.noise.Payload(s.at, s.all.shape.Payload))
		group.Go(func() {
			if _, err := s.client.EnqueueContext(s.ctx, task, asynq.Queue(s.all.shape.Queue)); err != nil {
				failed <- err
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (s *asynqSession) Lease(n int) error {
	for len(s.taken) < n {
		select {
		case h := <-s.all.handed:
			s.taken = append(s.taken, h)
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(within):
			return io.ErrNoProgress
		}
	}
	return nil
}

// Ack cannot wait: asynq does not report that a task is done.
func (s *asynqSession) Ack() error {
	for _, h := range s.taken {
		close(h.done)
	}
	s.taken = s.taken[:0]
	return nil
}

func (s *asynqSession) Close() error { return s.client.Close() }
