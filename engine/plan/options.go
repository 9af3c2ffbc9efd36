package plan

import (
	"fmt"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// DLQSuffix behind a queue's name makes that of the dead-letter queue it gets when
// none is named.
const DLQSuffix = ".dlq"

// Options are the settings of a queue that a command gives.
type Options struct {
	Given queueset.Given
	DLQ   *string // the queue that takes dead messages; nil: not given
	NoDLQ bool    // dead messages are dropped
}

// Apply writes the given options into the settings of a queue of this name, or says which is impossible.
func (o *Options) Apply(name string, set *storage.Queue) error {
	for s, row := range queueset.All() {
		n, ok := o.Given[s]
		if !ok {
			continue
		}
		if !row.Allows(n) {
			return fmt.Errorf("%w: %s must be %s %s, not %d", refusals.ErrInvalid, row.Token, row.Range(), row.Unit, n)
		}
		set.Values[s] = n
	}
	backoff, longest := set.Values[queueset.Backoff], &set.Values[queueset.MaxBackoff]
	_, hasBackoff := o.Given[queueset.Backoff]
	if _, hasLongest := o.Given[queueset.MaxBackoff]; hasBackoff && !hasLongest {
		*longest = max(*longest, backoff)
	}
	if *longest < backoff {
		return fmt.Errorf("%w: MAXBACKOFF %d is below BACKOFF %d", refusals.ErrInvalid, *longest, backoff)
	}
	if err := checkBatch(&set.Values); err != nil {
		return err
	}
	if o.DLQ != nil && o.NoDLQ {
		return fmt.Errorf("%w: DLQ and NODLQ exclude each other", refusals.ErrInvalid)
	}
	if o.DLQ != nil {
		switch *o.DLQ {
		case "":
			return fmt.Errorf("%w: DLQ is a queue's name, which has at least one byte; for none there is NODLQ", refusals.ErrInvalid)
		case name:
			return fmt.Errorf("%w: DLQ %q is the queue itself", refusals.ErrInvalid, name)
		}
		set.DLQ = *o.DLQ
	}
	if o.NoDLQ {
		set.DLQ = ""
	}
	return nil
}

// checkBatch refuses settings of a queue that do not go with a BATCH.
func checkBatch(set *queueset.Values) error {
	switch {
	case set[queueset.Batch] == 0:
		return nil
	case set[queueset.BatchWait] == 0:
		return fmt.Errorf("%w: BATCH needs BATCHWAIT, the time after which a key delivers what it has", refusals.ErrInvalid)
	case set[queueset.Ordered] > 0:
		return fmt.Errorf("%w: a queue with ORDERED delivers one message of a key at a time and has no BATCH", refusals.ErrInvalid)
	}
	return nil
}

// HookBounds returns the bounds of the hooks of a queue that a definition describes with these
// options: what is not given is the configuration's.
func (o *Options) HookBounds() hook.Bounds {
	var v queueset.Values
	for s, n := range o.Given {
		v[s] = n
	}
	return HookBounds(&v)
}

// HookBounds returns the bounds of the hooks of a queue with these settings.
func HookBounds(v *queueset.Values) hook.Bounds {
	return hook.Bounds{
		Timeout: v.Duration(queueset.LuaTimeout),
		Memory:  int(v[queueset.LuaMemory]),
		Errors:  uint32(v[queueset.BreakerErrors]),
	}
}

// HookSource points to the source of a hook in stored settings of a queue.
func HookSource(set *storage.Queue, kind hook.Kind) *string {
	if kind == hook.OnFailure {
		return &set.OnFailure
	}
	return &set.OnEnqueue
}

// MakeDLQ makes settings those of a dead-letter queue: its messages never die again.
func MakeDLQ(set *storage.Queue) {
	set.DeadLetter, set.Values[queueset.MaxAttempts], set.DLQ = true, 0, ""
}

// Queue is a queue that there is.
type Queue struct {
	Name     string
	Set      *storage.Queue // not to be changed
	Messages int64          // as far as they are counted
	Empty    bool           // it has no messages, and that is known
	Unused   bool           // it has never had any
	Hooks    [2]hook.Hook   // by hook.Kind, of the queues in a set; nil: none
}

// CheckReorder refuses to change whether a queue with messages is ordered.
func (q *Queue) CheckReorder(to *queueset.Values) error {
	if to[queueset.Ordered] == q.Set.Values[queueset.Ordered] || q.Empty {
		return nil
	}
	return fmt.Errorf("%w: %q has messages, ORDERED can change only while it is empty; drain or purge it first", refusals.ErrInvalid, q.Name)
}

// CanBecomeDLQ refuses to make a dead-letter queue of one that has such a queue
// itself. One that was made for it, since none was named, is given up while the queue is unused.
func (q *Queue) CanBecomeDLQ() error {
	if q.Set.DLQ == "" || q.Unused && q.Set.DLQ == q.Name+DLQSuffix {
		return nil
	}
	return fmt.Errorf("%w: %q cannot be a dead-letter queue, it has one of its own; FILA.QUEUE ALTER it with NODLQ first", refusals.ErrInvalid, q.Name)
}
