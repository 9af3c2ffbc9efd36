package fila

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// blockFor is how long one command waits for a message or a result, and so how long Run may take to
// notice the end of its context.
const blockFor = time.Second

// Queue is a queue of the broker. Client and Name are required. Its methods may be called from several
// goroutines.
type Queue struct {
	// Client is connected to the broker. Its ReadTimeout must be more than a second. Set its MaxRetries
	// to -1: an enqueue that is sent twice is two messages, and a lease two leases.
	Client redis.UniversalClient

	Name string

	// Settings are options of FILA.QUEUE CREATE, as alternating names and values, for a queue that does
	// not exist yet.
	Settings []any
}

// Message is what Enqueue stores. The zero value of a field leaves its option out.
type Message struct {
	Payload   []byte
	Key       string // fairness key
	Throttles []string
	Headers   map[string]string
	Delay     time.Duration // the message is not delivered before
	TTL       time.Duration
	Dedup     string // an id: a second message with it is not stored, within the queue's window

	// Unique is an id: while a message with it is in the queue, a second one is not stored, and Enqueue returns the id of
	// the first. UntilLease frees it when the message is leased. With Replace the second message takes the place of the
	// first, unless that is leased or has failed: its payload and all else but its id, key and priority. Its Delay starts
	// again, but never beyond MaxDelay after the first.
	Unique     string
	UntilLease bool
	Replace    bool
	MaxDelay   time.Duration

	// In place of the settings of the queue, for this message.
	MaxAttempts int // negative: without limit
	Backoff     time.Duration
	MaxBackoff  time.Duration

	// Group is the name of a group that waits for the message.
	Group string

	// Options are further options of FILA.ENQUEUE, as alternating names and values, such as PRIORITY or COST.
	Options []any
}

// Status is what has become of a message.
type Status string

// The states of a message, for its producer.
const (
	Pending Status = "pending" // ready, delayed or leased
	Done    Status = "done"    // acked
	Dead    Status = "dead"    // in the dead-letter queue, or dropped
)

// Result is what has become of a message.
type Result struct {
	Status Status
	Value  []byte // what the handler has returned; nil: nothing
	Error  string // of a dead message: its last error, or the reason

	Progress string // of a pending message: what its handler has said last, see Job.Progress
}

// ErrUnknown is returned for the result of a message that is not known, or not any more.
var ErrUnknown = errors.New("fila: the message is not known, or not any more")

// Create creates the queue, with its settings, unless it exists.
func (q *Queue) Create(ctx context.Context) error {
	if err := q.Client.Do(ctx, append([]any{"FILA.QUEUE", "CREATE", q.Name, "IFNOTEXISTS"}, q.Settings...)...).Err(); err != nil {
		return fmt.Errorf("create queue %q: %w", q.Name, err)
	}
	return nil
}

// Enqueue stores a message and returns its id, when the message survives a crash of the broker. It creates
// the queue if it does not exist. With the context of a handler, the message has the headers traceparent
// and tracestate of the one that is handled, unless it names its own.
func (q *Queue) Enqueue(ctx context.Context, m Message) (id string, err error) {
	args := q.enqueuing(ctx, m)
	id, err = q.Client.Do(ctx, args...).Text()
	if refused(err, "NOQUEUE") {
		if err := q.Create(ctx); err != nil {
			return "", err
		}
		id, err = q.Client.Do(ctx, args...).Text()
	}
	if err != nil {
		return "", fmt.Errorf("enqueue in %q: %w", q.Name, err)
	}
	return id, nil
}

// enqueuing returns the command that stores a message.
func (q *Queue) enqueuing(ctx context.Context, m Message) []any {
	args := []any{"FILA.ENQUEUE", q.Name, m.Payload}
	if m.Key != "" {
		args = append(args, "KEY", m.Key)
	}
	for _, t := range m.Throttles {
		args = append(args, "THROTTLE", t)
	}
	if m.Delay > 0 {
		args = append(args, "DELAY", m.Delay.Milliseconds())
	}
	if m.TTL > 0 {
		args = append(args, "TTL", m.TTL.Milliseconds())
	}
	if m.Dedup != "" {
		args = append(args, "DEDUP", m.Dedup)
	}
	if m.Group != "" {
		args = append(args, "GROUP", m.Group)
	}
	args = append(args, m.unique()...)
	args = append(args, m.retries()...)
	if job, ok := JobOf(ctx); ok {
		for _, name := range []string{"traceparent", "tracestate"} {
			_, own := m.Headers[name]
			if value, has := job.Headers[name]; has && !own {
				args = append(args, "HEADER", name, value)
			}
		}
	}
	for name, value := range m.Headers {
		args = append(args, "HEADER", name, value)
	}
	return append(args, m.Options...)
}

// unique returns the options about the unique id of a message.
func (m *Message) unique() (args []any) {
	if m.Unique != "" {
		args = append(args, "UNIQUE", m.Unique)
	}
	if m.UntilLease {
		args = append(args, "UNTIL", "LEASE")
	}
	if m.Replace {
		args = append(args, "REPLACE")
	}
	if m.MaxDelay > 0 {
		args = append(args, "MAXDELAY", m.MaxDelay.Milliseconds())
	}
	return args
}

// retries returns the options about the attempts of a message.
func (m *Message) retries() (args []any) {
	if m.MaxAttempts != 0 {
		args = append(args, "MAXATTEMPTS", max(m.MaxAttempts, 0))
	}
	if m.Backoff > 0 {
		args = append(args, "BACKOFF", m.Backoff.Milliseconds())
	}
	if m.MaxBackoff > 0 {
		args = append(args, "MAXBACKOFF", m.MaxBackoff.Milliseconds())
	}
	return args
}

// Result waits for the end of a message. When ctx ends it returns the message as it is, with the context's
// error if that is Pending.
func (q *Queue) Result(ctx context.Context, id string) (Result, error) {
	for {
		// A command whose context ends has no reply: the last one is sent without.
		args := []any{"FILA.RESULT", q.Name, id}
		if ctx.Err() == nil {
			args = append(args, "BLOCK", waitFor(ctx).Milliseconds())
		}
		reply, err := q.Client.Do(context.WithoutCancel(ctx), args...).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return Result{}, ErrUnknown
		case err != nil:
			return Result{}, fmt.Errorf("result of %s in %q: %w", id, q.Name, err)
		}
		r := resultOf(reply)
		if r.Status != Pending {
			return r, nil
		}
		if err := ctx.Err(); err != nil {
			return r, err
		}
	}
}

// waitFor is blockFor, or less if the context ends before; at least a millisecond, as 0 waits without end.
func waitFor(ctx context.Context) time.Duration {
	wait := blockFor
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end))
	}
	return max(wait, time.Millisecond)
}

// resultOf reads the reply of FILA.RESULT: a map in RESP3, else an array of names and values.
func resultOf(reply any) Result {
	fields := fieldsOf(reply)
	r := Result{Status: Status(text(fields["status"])), Error: text(fields["error"]), Progress: text(fields["progress"])}
	if value := text(fields["value"]); value != "" {
		r.Value = []byte(value)
	}
	return r
}

// fieldsOf reads a map: an array of names and values in RESP2.
func fieldsOf(reply any) map[any]any {
	if fields, ok := reply.(map[any]any); ok {
		return fields
	}
	fields := map[any]any{}
	pairs, _ := reply.([]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		fields[pairs[i]] = pairs[i+1]
	}
	return fields
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// refused reports whether the broker has replied an error with one of these codes, or with any if none is named.
func refused(err error, codes ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return false
	}
	for _, c := range codes {
		if strings.HasPrefix(reply.Error(), c+" ") {
			return true
		}
	}
	return len(codes) == 0
}
