package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/faisca/fila/internal/bench"
)

// jet is a NATS server with a work-queue stream in files. Publishes are asynchronous; one durable
// pull consumer fetches.
type jet struct {
	addr     string
	replicas int // of the stream; 0: one
	shape    bench.Shape
	noise    bench.Noise
}

func (*jet) Name() string { return "NATS JetStream" }

const (
	stream   = "BENCH"
	subject  = "bench"
	consumer = "workers"
)

// within is the timeout of commands that are not measured.
const within = 30 * time.Second

func (j *jet) connect() (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect("nats://" + j.addr)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	return nc, js, err
}

func (j *jet) Prepare(ctx context.Context, s bench.Shape) error {
	j.shape, j.noise = s, bench.NewNoise(s.Payload)
	nc, js, err := j.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	st, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: stream, Subjects: []string{subject}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: j.replicas,
	})
	if err != nil {
		return err
	}
	_, err = st.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, MaxWaiting: 10_000, AckWait: time.Hour,
	})
	return err
}

func (j *jet) Clean(ctx context.Context) error {
	nc, js, err := j.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return js.DeleteStream(ctx, stream)
}

func (j *jet) Connect(ctx context.Context) (bench.Session, error) {
	nc, js, err := j.connect()
	if err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c, err := js.Consumer(short, stream, consumer)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &jetSession{ctx: ctx, nc: nc, js: js, consumer: c, noise: j.noise, size: j.shape.Payload, at: rand.Uint64()}, nil
}

type jetSession struct {
	ctx      context.Context //nolint:containedctx // ends the session's calls with the load
	nc       *nats.Conn
	js       jetstream.JetStream
	consumer jetstream.Consumer
	noise    bench.Noise
	size     int
	at       uint64

	futures []jetstream.PubAckFuture
	taken   []jetstream.Msg
}

func (s *jetSession) Enqueue(n int) error {
	s.futures = s.futures[:0]
	for range n {
		s.at++
		f, err := s.js.PublishAsync(subject, s.noise.Payload(s.at, s.size))
		if err != nil {
			return err
		}
		s.futures = append(s.futures, f)
	}
	for _, f := range s.futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return err
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	return nil
}

func (s *jetSession) Lease(n int) error {
	for len(s.taken) < n && s.ctx.Err() == nil {
		batch, err := s.consumer.Fetch(n-len(s.taken), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			s.taken = append(s.taken, m)
		}
		if err := batch.Error(); err != nil {
			return err
		}
	}
	return s.ctx.Err()
}

// Ack waits for the reply to the last ack only: the server processes those of a connection in
// order.
func (s *jetSession) Ack() error {
	last := len(s.taken) - 1
	for i, m := range s.taken {
		var err error
		if i < last {
			err = m.Ack()
		} else {
			err = m.DoubleAck(s.ctx)
		}
		if err != nil {
			return err
		}
	}
	s.taken = s.taken[:0]
	return nil
}

func (s *jetSession) Close() error {
	s.nc.Close()
	return nil
}
