package filapubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"
	"gocloud.dev/pubsub/driver"
)

// blockFor is how long ReceiveBatch waits for a message.
const blockFor = time.Second

// SubscriptionOptions configure a subscription.
type SubscriptionOptions struct {
	// Visibility is the time within which a received message must be acked; it begins when the message
	// has been fetched, which may be a while before Receive returns it. 0: that of the queue.
	Visibility time.Duration

	// Consumer is a name that the broker shows to operators.
	Consumer string

	// Receive and Ack bound what one call fetches and acks. The zero values are 100 messages.
	Receive, Ack batcher.Options
}

// Delivery is what a message that has been received has beside its body and its metadata.
type Delivery struct {
	Receipt    string // of the lease, for FILA.EXTEND
	Queue      string
	Key        string // fairness key
	Attempt    int64  // 1 plus the number of failures
	EnqueuedAt time.Time
	LeaseUntil time.Time
}

type subscription struct {
	client redis.UniversalClient
	queue  string
	opts   SubscriptionOptions
}

// OpenSubscription returns a subscription to a queue. The caller closes the client, whose ReadTimeout must be
// more than a second. Its MaxRetries should be -1: a lease that it asks for twice may be two.
func OpenSubscription(client redis.UniversalClient, queue string, opts *SubscriptionOptions) *pubsub.Subscription {
	s := newSubscription(client, queue, opts)
	return pubsub.NewSubscription(s, &s.opts.Receive, &s.opts.Ack)
}

func newSubscription(client redis.UniversalClient, queue string, opts *SubscriptionOptions) *subscription {
	s := &subscription{client: client, queue: queue}
	if opts != nil {
		s.opts = *opts
	}
	for _, o := range []*batcher.Options{&s.opts.Receive, &s.opts.Ack} {
		if o.MaxBatchSize == 0 {
			o.MaxBatchSize = 100
		}
	}
	return s
}

// ReceiveBatch implements driver.Subscription.
func (s *subscription) ReceiveBatch(ctx context.Context, maxMessages int) ([]*driver.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	args := []any{"FILA.LEASE", s.queue, "COUNT", maxMessages, "BLOCK", blockFor.Milliseconds()}
	if s.opts.Visibility > 0 {
		args = append(args, "VISIBILITY", s.opts.Visibility.Milliseconds())
	}
	if s.opts.Consumer != "" {
		args = append(args, "CONSUMER", s.opts.Consumer)
	}
	// The call ends by itself: if the client gave it up, messages could stay leased without a consumer.
	reply, err := s.client.Do(context.WithoutCancel(ctx), args...).Slice()
	if err != nil {
		return nil, fmt.Errorf("receive from %q: %w", s.queue, err)
	}
	ms := make([]*driver.Message, 0, len(reply))
	for _, one := range reply {
		m, err := s.message(one)
		if err != nil {
			return nil, err
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// message reads a message of the reply of FILA.LEASE: receipt, payload, headers, key, attempt, deliveries,
// enqueued_at, lease_until, queue.
func (s *subscription) message(reply any) (*driver.Message, error) {
	fields, _ := reply.([]any)
	if len(fields) < 9 {
		return nil, fmt.Errorf("receive from %q: FILA.LEASE has replied %v", s.queue, reply)
	}
	text := func(i int) string { v, _ := fields[i].(string); return v }
	number := func(i int) int64 { v, _ := fields[i].(int64); return v }
	d := &Delivery{
		Receipt: text(0), Queue: text(8), Key: text(3), Attempt: number(4), EnqueuedAt: time.UnixMilli(number(6)), LeaseUntil: time.UnixMilli(number(7)),
	}
	m := &driver.Message{LoggableID: d.Receipt, Body: []byte(text(1)), AckID: d.Receipt, AsFunc: func(i any) bool {
		p, ok := i.(**Delivery)
		if ok {
			*p = d
		}
		return ok
	}}
	headers, _ := fields[2].([]any)
	for i := 0; i+1 < len(headers); i += 2 {
		if m.Metadata == nil {
			m.Metadata = map[string]string{}
		}
		name, _ := headers[i].(string)
		m.Metadata[name], _ = headers[i+1].(string)
	}
	return m, nil
}

// SendAcks implements driver.Subscription. A lease that is over is no error.
func (s *subscription) SendAcks(ctx context.Context, ids []driver.AckID) error {
	args := []any{"FILA.ACK", s.queue}
	for _, id := range ids {
		args = append(args, id)
	}
	if err := s.client.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("ack in %q: %w", s.queue, err)
	}
	return nil
}

// CanNack implements driver.Subscription.
func (*subscription) CanNack() bool { return true }

// SendNacks implements driver.Subscription. A lease that is over is no error: the message is delivered again
// anyway.
func (s *subscription) SendNacks(ctx context.Context, ids []driver.AckID) error {
	cmds, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range ids {
			p.Do(ctx, "FILA.NACK", s.queue, id)
		}
		return nil
	})
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) {
		return fmt.Errorf("nack in %q: %w", s.queue, err)
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !strings.HasPrefix(err.Error(), "LEASELOST") {
			return fmt.Errorf("nack in %q: %w", s.queue, err)
		}
	}
	return nil
}

// IsRetryable implements driver.Subscription: what is not a reply of the broker is tried again.
func (*subscription) IsRetryable(err error) bool {
	var reply redis.Error
	return !errors.As(err, &reply) && !errors.Is(err, redis.ErrClosed) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// As implements driver.Subscription.
func (s *subscription) As(i any) bool { return asClient(s.client, i) }

// ErrorAs implements driver.Subscription.
func (*subscription) ErrorAs(err error, i any) bool { return errorAs(err, i) }

// ErrorCode implements driver.Subscription.
func (*subscription) ErrorCode(err error) gcerrors.ErrorCode { return errorCode(err) }

// Close implements driver.Subscription. The client remains open.
func (*subscription) Close() error { return nil }
