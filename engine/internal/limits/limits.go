// Package limits has the bounds of what clients send, and checks names against them. Its errors are those of package refusals.
package limits

import (
	"errors"
	"fmt"
	"strings"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/hook"
)

// Limits bound a single message or command, and tables that no message bounds. All limits are
// inclusive and must be positive. Exceeding one is refused with ErrTooBig or ErrInvalid, before
// anything has changed.
type Limits struct {
	hook.Limits
	QueueName   int // bytes of a queue name
	Dedup       int // bytes of a deduplication id
	HeaderName  int // bytes of a header's name
	HeaderValue int // bytes of a header's value
	Headers     int // headers of a message
	Payload     int // bytes of a payload
	Result      int // bytes of a result
	Count       int // messages of one lease command
	Crons       int // recurring messages in total
	Signals     int // pairs of subject and name; one more takes the place of another
	Budgets     int // budgets in total
	Groups      int // groups that have not come to their end
	Holds       int // throttle keys that are held at a time; one more takes the place of another
	Instances   int // throttles of patterns in memory that nothing names any more; 0: 1,000,000
	Values      int // entries of the runtime configuration
	ValueBytes  int // bytes of these entries, keys included
}

// Default returns the limits that hold without configuration.
func Default() Limits {
	return Limits{
		Limits:    hook.DefaultLimits(),
		QueueName: 255, Dedup: 512, HeaderName: 512, HeaderValue: 8 << 10, Headers: 64, Payload: 16 << 20, Result: 1 << 20,
		Count: 10_000, Crons: 10_000, Budgets: 100_000, Signals: 100_000, Holds: 100_000, Groups: 100_000, Instances: 1_000_000, Values: 100_000, ValueBytes: 64 << 20,
	}
}

// Check returns an error for limits with which the engine could not keep its promises.
func (l *Limits) Check() error {
	if min(l.QueueName, l.HeaderName, l.HeaderValue, l.Headers, l.Payload, l.Count, l.Crons, l.Budgets, l.Groups, l.Signals, l.Values, l.ValueBytes) <= 0 || !l.Some() {
		return errors.New("engine: a limit of 0 would refuse everything")
	}
	if max(l.QueueName, l.Key, l.Throttle, l.HeaderName) > 1<<15 {
		return errors.New("engine: names longer than 32768 bytes do not fit a key of the store")
	}
	return nil
}

// CheckKey refuses what is no fairness key.
func (l *Limits) CheckKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: a fairness key has at least one byte", refusals.ErrInvalid)
	}
	if len(key) > l.Key {
		return fmt.Errorf("%w: fairness key of %d bytes, the limit is %d", refusals.ErrTooBig, len(key), l.Key)
	}
	return nil
}

// CheckThrottleKey refuses what is no throttle key.
func (l *Limits) CheckThrottleKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: a throttle key has at least one byte", refusals.ErrInvalid)
	}
	if len(key) > l.Throttle {
		return fmt.Errorf("%w: throttle key of %d bytes, the limit is %d", refusals.ErrTooBig, len(key), l.Throttle)
	}
	return nil
}

// CheckQueueName refuses what is no name of a queue.
func (l *Limits) CheckQueueName(name string) error {
	return l.checkName(name, "a queue name", "the queue name")
}

// CheckTopicName refuses what is no name of a topic. Rights to topics are patterns of names, as
// those to queues, and so are the rules.
func (l *Limits) CheckTopicName(name string) error {
	return l.checkName(name, "the name of a topic", "the topic")
}

// CheckGroupName refuses what is no name of a group. Rights to groups are patterns of names as well.
func (l *Limits) CheckGroupName(name string) error {
	return l.checkName(name, "the name of a group", "the group")
}

// checkName refuses what is no name, with the nouns for any name of its kind and for this one.
func (l *Limits) checkName(name, kind, this string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: %s has at least one byte", refusals.ErrInvalid, kind)
	case len(name) > l.QueueName:
		return fmt.Errorf("%w: %s has %d bytes, the limit is %d", refusals.ErrTooBig, this, len(name), l.QueueName)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%w: %s has no control characters", refusals.ErrInvalid, kind)
	}
	return nil
}
