package fila

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// uuidHeader is the header of a message that holds its UUID. All other headers are its metadata.
const uuidHeader = "watermill-uuid"

// ErrClosed is returned by a publisher or subscriber that has been closed.
var ErrClosed = errors.New("fila: closed")

// PublisherConfig configures a Publisher. Only Client is required.
type PublisherConfig struct {
	// Client is connected to the broker. Close does not close it. Retries of the client may publish a
	// message twice, so set MaxRetries to -1, or give messages the option DEDUP.
	Client redis.UniversalClient

	// Options returns options of FILA.ENQUEUE for a message, as alternating names and values: KEY, THROTTLE,
	// PRIORITY, DELAY, TTL, DEDUP. nil: none. See KeyFrom.
	Options func(topic string, msg *message.Message) []any

	// QueueOptions are those of FILA.QUEUE CREATE for queues that do not exist yet.
	QueueOptions []any

	// FanOut publishes to the queues that subscribers with a ConsumerGroup have bound to the topic. A
	// message of a topic without such queues is not stored.
	FanOut bool
}

// Publisher publishes messages to queues or topics of Fila. Its methods may be called from several
// goroutines.
type Publisher struct {
	config PublisherConfig
	closed atomic.Bool
}

// NewPublisher returns a publisher. It sends nothing.
func NewPublisher(config PublisherConfig) *Publisher { return &Publisher{config: config} }

// KeyFrom returns Options that take the fairness key of a message from a metadata field. A message
// without it has the default key.
func KeyFrom(field string) func(string, *message.Message) []any {
	return func(_ string, msg *message.Message) []any {
		if key := msg.Metadata.Get(field); key != "" {
			return []any{"KEY", key}
		}
		return nil
	}
}

// Publish stores messages, all of them or none, and returns when they survive a crash of the broker. A
// queue that does not exist is created. The context is that of the first message.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if len(messages) == 0 {
		return nil
	}
	ctx := messages[0].Context()
	err := p.send(ctx, topic, messages)
	if err != nil && strings.HasPrefix(err.Error(), "NOQUEUE") && !p.config.FanOut {
		if err := createQueue(ctx, p.config.Client, topic, p.config.QueueOptions); err != nil {
			return fmt.Errorf("create queue %q: %w", topic, err)
		}
		err = p.send(ctx, topic, messages)
	}
	if err != nil {
		return fmt.Errorf("publish to %q: %w", topic, err)
	}
	return nil
}

// send sends messages in one transaction.
func (p *Publisher) send(ctx context.Context, topic string, messages []*message.Message) error {
	if len(messages) == 1 {
		return p.config.Client.Do(ctx, p.command(topic, messages[0])...).Err()
	}
	_, err := p.config.Client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		for _, msg := range messages {
			tx.Do(ctx, p.command(topic, msg)...)
		}
		return nil
	})
	return err
}

// command returns the command that publishes a message.
func (p *Publisher) command(topic string, msg *message.Message) []any {
	name := "FILA.ENQUEUE"
	if p.config.FanOut {
		name = "FILA.PUBLISH"
	}
	args := []any{name, topic, []byte(msg.Payload), "HEADER", uuidHeader, msg.UUID}
	for field, value := range msg.Metadata {
		args = append(args, "HEADER", field, value)
	}
	if p.config.Options != nil {
		args = append(args, p.config.Options(topic, msg)...)
	}
	return args
}

// Close makes later calls of Publish fail. Messages are stored when Publish returns, so nothing is left
// to be sent.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}

// createQueue creates a queue unless it exists.
func createQueue(ctx context.Context, client redis.UniversalClient, queue string, options []any) error {
	err := client.Do(ctx, append([]any{"FILA.QUEUE", "CREATE", queue}, options...)...).Err()
	if err != nil && strings.HasPrefix(err.Error(), "QUEUEEXISTS") {
		return nil
	}
	return err
}
