package filapubsub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"
	"gocloud.dev/pubsub/driver"
)

// Options are options of FILA.ENQUEUE, as alternating names and values: Options{"KEY", "acme", "THROTTLE",
// "provider:x"}. The BeforeSend of a message sets them.
type Options []any

// TopicOptions configure a topic.
type TopicOptions struct {
	// FanOut sends to every queue that is bound to the topic, in one write. A send to a topic without
	// queues fails with gcerrors.NotFound: no queue would store the message.
	FanOut bool

	// KeyFrom names the metadata whose value is the fairness key of a message. "": the default key.
	KeyFrom string

	// Batcher bounds what one call sends; each batch is one transaction. The zero value is up to 100
	// messages.
	Batcher batcher.Options
}

// errNoQueue is a send to a topic that no queue is bound to.
var errNoQueue = errors.New("no queue is bound to the topic, bind one with FILA.TOPIC BIND")

type topic struct {
	client redis.UniversalClient
	name   string
	opts   TopicOptions
}

// OpenTopic returns a topic that sends to the queue of a name or, with FanOut, to the queues that are bound
// to it. The caller closes the client. Its MaxRetries should be -1: a send that it repeats may be stored
// twice.
func OpenTopic(client redis.UniversalClient, name string, opts *TopicOptions) *pubsub.Topic {
	t := newTopic(client, name, opts)
	return pubsub.NewTopic(t, &t.opts.Batcher)
}

func newTopic(client redis.UniversalClient, name string, opts *TopicOptions) *topic {
	t := &topic{client: client, name: name}
	if opts != nil {
		t.opts = *opts
	}
	if t.opts.Batcher.MaxBatchSize == 0 {
		t.opts.Batcher.MaxBatchSize = 100
	}
	return t
}

// SendBatch implements driver.Topic. All messages are stored, or none.
func (t *topic) SendBatch(ctx context.Context, ms []*driver.Message) error {
	cmds, err := t.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		for _, m := range ms {
			args, err := t.command(m)
			if err != nil {
				return err
			}
			tx.Do(ctx, args...)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("send to %q: %w", t.name, err)
	}
	for i, cmd := range cmds {
		if ids, ok := cmd.(*redis.Cmd); ok && t.opts.FanOut {
			if all, err := ids.Slice(); err == nil && len(all) == 0 {
				return fmt.Errorf("send to %q: %w", t.name, errNoQueue)
			}
		}
		if ms[i].AfterSend != nil {
			if err := ms[i].AfterSend(func(any) bool { return false }); err != nil {
				return err
			}
		}
	}
	return nil
}

// command returns the command that stores a message.
func (t *topic) command(m *driver.Message) ([]any, error) {
	name := "FILA.ENQUEUE"
	if t.opts.FanOut {
		name = "FILA.PUBLISH"
	}
	args := []any{name, t.name, m.Body}
	for field, value := range m.Metadata {
		args = append(args, "HEADER", field, value)
	}
	if key := m.Metadata[t.opts.KeyFrom]; t.opts.KeyFrom != "" && key != "" {
		args = append(args, "KEY", key)
	}
	if m.BeforeSend != nil {
		var more *Options
		as := func(i any) bool {
			p, ok := i.(**Options)
			if ok {
				more = &Options{}
				*p = more
			}
			return ok
		}
		if err := m.BeforeSend(as); err != nil {
			return nil, err
		}
		if more != nil {
			args = append(args, *more...)
		}
	}
	return args, nil
}

// IsRetryable implements driver.Topic. What the connection has lost may have been stored, so it is for the
// caller to decide.
func (*topic) IsRetryable(error) bool { return false }

// As implements driver.Topic.
func (t *topic) As(i any) bool { return asClient(t.client, i) }

func asClient(client redis.UniversalClient, i any) bool {
	p, ok := i.(*redis.UniversalClient)
	if ok {
		*p = client
	}
	return ok
}

// ErrorAs implements driver.Topic.
func (*topic) ErrorAs(err error, i any) bool { return errorAs(err, i) }

func errorAs(err error, i any) bool {
	p, ok := i.(*redis.Error)
	return ok && errors.As(err, p)
}

// ErrorCode implements driver.Topic.
func (*topic) ErrorCode(err error) gcerrors.ErrorCode { return errorCode(err) }

// errorCode returns the code of an error: that of the broker's reply, which begins with a word of its own,
// or that of the connection.
func errorCode(err error) gcerrors.ErrorCode {
	var reply redis.Error
	var timeout net.Error
	switch {
	case errors.Is(err, errNoQueue):
		return gcerrors.NotFound
	case errors.Is(err, context.Canceled), errors.Is(err, redis.ErrClosed):
		return gcerrors.Canceled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return gcerrors.DeadlineExceeded
	case errors.As(err, &reply):
		word, _, _ := strings.Cut(strings.TrimPrefix(reply.Error(), "EXECABORT "), " ")
		if code, ok := codes()[word]; ok {
			return code
		}
		return gcerrors.Unknown
	case errors.Is(err, io.EOF):
		return gcerrors.Internal
	}
	return gcerrors.Unknown
}

// codes are those of the broker's errors that a caller can do something about.
func codes() map[string]gcerrors.ErrorCode {
	return map[string]gcerrors.ErrorCode{
		"NOQUEUE":     gcerrors.NotFound,
		"QUEUEEXISTS": gcerrors.AlreadyExists,
		"INVALID":     gcerrors.InvalidArgument,
		"TOOBIG":      gcerrors.InvalidArgument,
		"LEASELOST":   gcerrors.FailedPrecondition,
		"PAUSED":      gcerrors.FailedPrecondition,
		"NOBUDGET":    gcerrors.FailedPrecondition,
		"MAXDEPTH":    gcerrors.ResourceExhausted,
		"CREDIT":      gcerrors.ResourceExhausted,
		"OOM":         gcerrors.ResourceExhausted,
		"NOAUTH":      gcerrors.PermissionDenied,
		"NOPERM":      gcerrors.PermissionDenied,
		"WRONGPASS":   gcerrors.PermissionDenied,
		"MISCONF":     gcerrors.Internal,
	}
}

// Close implements driver.Topic. The client remains open.
func (*topic) Close() error { return nil }
