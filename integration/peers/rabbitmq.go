package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/faisca/fila/internal/bench"
)

// rabbit is a RabbitMQ with a quorum queue: publishes with confirms, deliveries pushed up to a
// prefetch count, one ack frame per batch.
type rabbit struct {
	addr     string
	replicas int    // of the queue; 0: one
	version  string // set once it is ready
	shape    bench.Shape
	noise    bench.Noise
}

func (*rabbit) Name() string { return "RabbitMQ" }

func (r *rabbit) url() string { return "amqp://guest:guest@" + r.addr + "/" }

// ready returns nil once a client can log in.
func (r *rabbit) ready() error {
	c, err := amqp.Dial(r.url())
	if err != nil {
		return err
	}
	r.version, _ = c.Properties["version"].(string)
	return c.Close()
}

// with calls do with a new channel.
func (r *rabbit) with(do func(*amqp.Channel) error) error {
	c, err := amqp.Dial(r.url())
	if err != nil {
		return err
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}

func (r *rabbit) Prepare(_ context.Context, s bench.Shape) error {
	r.shape, r.noise = s, bench.NewNoise(s.Payload)
	return r.with(func(ch *amqp.Channel) error {
		args := amqp.Table{"x-queue-type": "quorum"}
		if r.replicas > 0 {
			args["x-quorum-initial-group-size"] = r.replicas
		}
		_, err := ch.QueueDeclare(s.Queue, true, false, false, false, args)
		return err
	})
}

func (r *rabbit) Clean(context.Context) error {
	return r.with(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(r.shape.Queue, false, false, false)
		return err
	})
}

func (r *rabbit) Connect(ctx context.Context) (bench.Session, error) {
	c, err := amqp.Dial(r.url())
	if err != nil {
		return nil, err
	}
	s := &rabbitSession{ctx: ctx, conn: c, queue: r.shape.Queue, noise: r.noise, size: r.shape.Payload, at: rand.Uint64()}
	if s.ch, err = c.Channel(); err == nil {
		err = s.ch.Confirm(false)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s, nil
}

type rabbitSession struct {
	ctx   context.Context //nolint:containedctx // ends the session's calls with the load
	conn  *amqp.Connection
	ch    *amqp.Channel
	queue string
	noise bench.Noise
	size  int
	at    uint64

	confirms   []*amqp.DeferredConfirmation
	deliveries <-chan amqp.Delivery // nil until the first lease, whose size becomes the prefetch count
	last       amqp.Delivery
}

func (s *rabbitSession) Enqueue(n int) error {
	s.confirms = s.confirms[:0]
	for range n {
		s.at++
		d, err := s.ch.PublishWithDeferredConfirmWithContext(s.ctx, "", s.queue, false, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, Body: s.noise.Payload(s.at, s.size)})
		if err != nil {
			return err
		}
		s.confirms = append(s.confirms, d)
	}
	for _, d := range s.confirms {
		ok, err := d.WaitContext(s.ctx)
		if err != nil {
			return err
		}
		if !ok {
			return errors.New("RabbitMQ did not confirm a message")
		}
	}
	return nil
}

func (s *rabbitSession) Lease(n int) error {
	if s.deliveries == nil {
		if err := s.ch.Qos(n, 0, false); err != nil {
			return err
		}
		d, err := s.ch.ConsumeWithContext(s.ctx, s.queue, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		s.deliveries = d
	}
	for range n {
		select {
		case d, ok := <-s.deliveries:
			if !ok {
				return errors.New("RabbitMQ closed the channel")
			}
			s.last = d
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(within):
			return errors.New("no message was delivered")
		}
	}
	return nil
}

func (s *rabbitSession) Ack() error { return s.last.Ack(true) }

func (s *rabbitSession) Close() error { return s.conn.Close() }
