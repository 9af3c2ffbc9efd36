package fila

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

const (
	// blockFor is how long a lease waits for a message, and so how long Close may take.
	blockFor = time.Second
	// retryAfter is the pause after an error of the connection.
	retryAfter = 200 * time.Millisecond
	// defaultVisibility is the visibility timeout of leases, unless it is configured.
	defaultVisibility = 30 * time.Second
)

// SubscriberConfig configures a Subscriber. Only Client is required.
type SubscriberConfig struct {
	// Client is connected to the broker. Close does not close it. Its ReadTimeout must be more than a
	// second. Set its MaxRetries to -1: a lease that is asked for twice may be two.
	Client redis.UniversalClient

	// ConsumerGroup names a group that gets every message of a topic. "": subscribers of all processes
	// share the queue that is named like the topic. Publishers for groups have FanOut.
	ConsumerGroup string

	// Visibility is for how long a message is leased, and by what the lease is extended while a handler
	// works. A message of a process that died is delivered again after it. 0: 30 seconds.
	Visibility time.Duration

	// QueueOptions are those of FILA.QUEUE CREATE for queues that do not exist yet. With ORDERED ON a
	// queue has at most one message of a fairness key out, and keeps their order.
	QueueOptions []any

	// Consumer is a name that the broker shows to operators.
	Consumer string

	// Logger logs the errors that are retried. nil: they are not logged.
	Logger watermill.LoggerAdapter
}

// Subscriber delivers the messages of queues. Its methods may be called from several goroutines.
type Subscriber struct {
	config  SubscriberConfig
	closed  chan struct{}
	mu      sync.Mutex // of closed, and of additions to running
	running sync.WaitGroup
}

// NewSubscriber returns a subscriber. It sends nothing.
func NewSubscriber(config SubscriberConfig) *Subscriber {
	if config.Visibility <= 0 {
		config.Visibility = defaultVisibility
	}
	if config.Logger == nil {
		config.Logger = watermill.NopLogger{}
	}
	return &Subscriber{config: config, closed: make(chan struct{})}
}

// SubscribeInitialize creates the queue of a topic, and binds it to the topic if the subscriber has a
// ConsumerGroup, so that messages are stored before Subscribe is called.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	return s.initialize(context.Background(), topic)
}

func (s *Subscriber) initialize(ctx context.Context, topic string) error {
	queue := s.queue(topic)
	if err := createQueue(ctx, s.config.Client, queue, s.config.QueueOptions); err != nil {
		return fmt.Errorf("create queue %q: %w", queue, err)
	}
	if s.config.ConsumerGroup == "" {
		return nil
	}
	if err := s.config.Client.Do(ctx, "FILA.TOPIC", "BIND", topic, queue).Err(); err != nil {
		return fmt.Errorf("bind queue %q to topic %q: %w", queue, topic, err)
	}
	return nil
}

// queue returns the name of the queue from which a topic is read.
func (s *Subscriber) queue(topic string) string {
	if s.config.ConsumerGroup == "" {
		return topic
	}
	return topic + "." + s.config.ConsumerGroup
}

// Subscribe delivers the messages of a topic, one at a time: the next one when the one before is acked or
// nacked. It creates the queue if it does not exist. The channel is closed when ctx ends or the
// subscriber is closed; a message that is not acked by then is released, without a failure.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if !s.begin() {
		return nil, ErrClosed
	}
	if err := s.initialize(ctx, topic); err != nil {
		s.running.Done()
		return nil, err
	}
	out := make(chan *message.Message)
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with the subscription
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	go func() {
		defer s.running.Done()
		defer close(out)
		defer cancel()
		s.consume(ctx, topic, out)
	}()
	return out, nil
}

// begin adds a subscription to those that Close waits for; false: the subscriber is closed.
func (s *Subscriber) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
		s.running.Add(1)
		return true
	}
}

// Close ends all subscriptions and waits for them.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// consume leases and delivers messages until ctx ends.
func (s *Subscriber) consume(ctx context.Context, topic string, out chan<- *message.Message) {
	queue := s.queue(topic)
	for ctx.Err() == nil {
		d, err := s.lease(queue)
		switch {
		case err == nil && d != nil:
			s.deliver(ctx, d, out)
		case err == nil:
		case strings.HasPrefix(err.Error(), "NOQUEUE"):
			err = s.initialize(ctx, topic)
		}
		if err != nil && ctx.Err() == nil {
			s.config.Logger.Error("lease a message", err, watermill.LogFields{"queue": queue})
			pause(ctx, retryAfter)
		}
	}
}

// delivery is a leased message.
type delivery struct {
	queue   string
	receipt string
	msg     *message.Message
}

// lease waits for a message; nil: there was none. The call is not cancelled: the
// lease of a cancelled call would keep a message from other consumers.
func (s *Subscriber) lease(queue string) (*delivery, error) {
	args := []any{"FILA.LEASE", queue, "BLOCK", blockFor.Milliseconds(), "VISIBILITY", s.config.Visibility.Milliseconds()}
	if s.config.Consumer != "" {
		args = append(args, "CONSUMER", s.config.Consumer)
	}
	reply, err := s.config.Client.Do(context.Background(), args...).Slice()
	if err != nil || len(reply) == 0 {
		return nil, err
	}
	fields, _ := reply[0].([]any) // receipt, payload, headers, ...
	if len(fields) < 3 {
		return nil, fmt.Errorf("FILA.LEASE has replied %v", reply[0])
	}
	headers, _ := fields[2].([]any)
	msg := message.NewMessage("", []byte(text(fields[1])))
	for i := 0; i+1 < len(headers); i += 2 {
		if name, value := text(headers[i]), text(headers[i+1]); name == uuidHeader {
			msg.UUID = value
		} else {
			msg.Metadata.Set(name, value)
		}
	}
	return &delivery{queue: queue, receipt: text(fields[0]), msg: msg}, nil
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// deliver hands a message out and waits for its ack or nack, during which it extends the lease.
func (s *Subscriber) deliver(ctx context.Context, d *delivery, out chan<- *message.Message) {
	work, done := context.WithCancel(ctx)
	defer done()
	d.msg.SetContext(work)
	extend := time.NewTicker(s.config.Visibility / 3)
	defer extend.Stop()
	give := out
	for {
		select {
		case give <- d.msg:
			give = nil
		case <-d.msg.Acked():
			s.end(ctx, "FILA.ACK", d)
			return
		case <-d.msg.Nacked():
			s.end(ctx, "FILA.NACK", d)
			return
		case <-extend.C:
			if err := s.do("FILA.EXTEND", d, s.config.Visibility.Milliseconds()); err != nil {
				s.config.Logger.Error("extend a lease", err, d.fields())
			}
		case <-ctx.Done():
			select {
			case <-d.msg.Acked(): // both were ready
				s.end(ctx, "FILA.ACK", d)
			default:
				s.end(ctx, "FILA.RELEASE", d)
			}
			return
		}
	}
}

// end ends a lease. While the broker cannot be reached it tries again, until the lease would be over.
func (s *Subscriber) end(ctx context.Context, command string, d *delivery) {
	for until := time.Now().Add(s.config.Visibility); ; {
		err := s.do(command, d)
		if err == nil {
			return
		}
		var refused redis.Error
		s.config.Logger.Error("end a lease", err, d.fields().Add(watermill.LogFields{"command": command}))
		if errors.As(err, &refused) || ctx.Err() != nil || time.Now().After(until) {
			return // the message is delivered again
		}
		pause(ctx, retryAfter)
	}
}

// do sends a command about a lease. It is not given up when the subscription ends.
func (s *Subscriber) do(command string, d *delivery, args ...any) error {
	return s.config.Client.Do(context.Background(), append([]any{command, d.queue, d.receipt}, args...)...).Err()
}

func (d *delivery) fields() watermill.LogFields {
	return watermill.LogFields{"queue": d.queue, "message_uuid": d.msg.UUID}
}

// pause waits, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

var (
	_ message.Publisher            = (*Publisher)(nil)
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)
