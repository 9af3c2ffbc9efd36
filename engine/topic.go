package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/engine/topic"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/storage"
)

// Commands about topics; publish.go has the publish. A queue that is deleted leaves its topics in the same batch.

// BindingsMax bounds the bindings of a topic.
const BindingsMax = topic.Most

type (
	// Condition is what a binding asks of a message.
	Condition = topic.Condition
	// Binding is a queue that gets the messages of a topic that meet all conditions.
	Binding = topic.Binding
	// TopicInfo describes a topic.
	TopicInfo = topic.Info
	// TopicStats are the figures of all topics.
	TopicStats = topic.Stats
)

// topicTable is the component of topics.
type topicTable struct {
	topic.Table

	untimed
}

func (t *topicTable) reset() { t.Reset() }

// check verifies the topics (31).
func (t *topicTable) check(c *core, bad report) {
	t.Check(func(queue string) bool { return c.queues.byName[queue] != nil }, topic.Report(bad))
	if t.View() != c.out.snapshot.topics {
		bad(31, "the snapshot has other bindings")
	}
}

// checkBinding validates the conditions of a binding.
func checkBinding(l *Limits, b *Binding) error {
	if len(b.Conditions) > l.Headers {
		return fmt.Errorf("%w: %s, the limit is %d", ErrTooBig, errtext.Amount(len(b.Conditions), "header"), l.Headers)
	}
	for _, c := range b.Conditions {
		switch {
		case c.Header == "":
			return fmt.Errorf("%w: a header name has at least one byte", ErrInvalid)
		case len(c.Header) > l.HeaderName:
			return fmt.Errorf("%w: HEADER name of %d bytes, the limit is %d", ErrTooBig, len(c.Header), l.HeaderName)
		case len(c.Pattern) > l.HeaderValue:
			return fmt.Errorf("%w: HEADER pattern of %d bytes, the limit is %d", ErrTooBig, len(c.Pattern), l.HeaderValue)
		}
		if err := glob.Check(c.Pattern); err != nil {
			return fmt.Errorf("%w: the pattern %.80q of header %.80q %w", ErrInvalid, c.Pattern, c.Header, err)
		}
	}
	return nil
}

// Bind has a queue get the messages of a topic, and reports whether it did not before: else the
// conditions of its binding are replaced. Messages that are published after the reply follow it.
//
// Errors: ErrMisconf, ErrNoQueue, ErrInvalid for a name, a pattern or one binding too many,
// ErrTooBig.
func (tx *Tx) Bind(topic string, b Binding) (added bool, err error) {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return false, err
	}
	q, err := c.queueNamed(b.Queue)
	if err != nil {
		return false, err
	}
	if err := c.cfg.Limits.CheckTopicName(topic); err != nil {
		return false, err
	}
	if err := checkBinding(&c.cfg.Limits, &b); err != nil {
		return false, err
	}
	n := len(c.topics.View().Bindings(topic).All())
	if err := tx.afford(1 + n/bindingsPerUnit); err != nil {
		return false, err
	}
	if _, found := c.topics.Binding(topic, q.name); !found {
		if err := checkBindingCount(topic, n, c.topics.Len()); err != nil {
			return false, err
		}
	}
	return c.bind(topic, b), nil
}

// bindingsPerUnit is the number of bindings that a unit of work pays for when they are copied.
const bindingsPerUnit = 64

// checkBindingCount refuses one more binding of a topic that has so many, and all have total.
func checkBindingCount(name string, ofTopic, total int) error {
	if ofTopic >= BindingsMax {
		return fmt.Errorf("%w: topic %.80q has %s, which is the limit", ErrInvalid, name, errtext.Amount(ofTopic, "binding"))
	}
	if total >= topic.MostOfAll {
		return fmt.Errorf("%w: the topics have %s, which is the limit", ErrInvalid, errtext.Amount(total, "binding"))
	}
	return nil
}

// bind adds or replaces a binding that has been checked, and reports whether it added one.
func (c *core) bind(name string, b Binding) bool {
	rec := b.Record()
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateTopic, name, b.Queue), rec.Append(nil))
	c.out.sync = true
	added := c.topics.Bind(name, b)
	c.out.snapshot = c.out.snapshot.withTopics(c.topics.View())
	if added {
		c.emit(Event{Kind: EventBound, Queue: b.Queue, Topic: name})
	}
	return added
}

// Unbind ends the binding of a queue to a topic, and reports whether there was one.
func (tx *Tx) Unbind(topic, queue string) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	if _, found := c.topics.Binding(topic, queue); !found {
		return false, nil
	}
	if err := tx.afford(c.unbindUnits(topic)); err != nil {
		return false, err
	}
	c.unbind(topic, queue)
	return true, nil
}

// unbindUnits is the work of removing one binding of a topic.
func (c *core) unbindUnits(topic string) int {
	return 1 + len(c.topics.View().Bindings(topic).All())/bindingsPerUnit
}

// unbind removes the binding of a queue to a topic.
func (c *core) unbind(topic, queue string) {
	c.topics.Unbind(topic, queue)
	c.unbound(topic, queue)
	c.out.snapshot = c.out.snapshot.withTopics(c.topics.View())
}

// unbound writes that a queue is no longer bound to a topic.
func (c *core) unbound(topic, queue string) {
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, storage.StateTopic, topic, queue))
	c.out.sync = true
	c.emit(Event{Kind: EventUnbound, Queue: queue, Topic: topic})
}

// leaveTopics ends all bindings of a queue that is deleted.
func (c *core) leaveTopics(queue string) {
	c.topics.UnbindAll(queue, func(topic string) {
		c.spend(c.unbindUnits(topic))
		c.unbound(topic, queue)
	})
	c.out.snapshot = c.out.snapshot.withTopics(c.topics.View())
}

// Topic describes a topic; ok is false if no queue is bound to one of that name.
func (tx *Tx) Topic(name string) (info TopicInfo, ok bool) { return tx.core.topics.Info(name) }

// Bound reports whether a queue is bound to a topic.
func (tx *Tx) Bound(topic, queue string) bool {
	_, found := tx.core.topics.Binding(topic, queue)
	return found
}

// Topics lists up to count topics from a cursor on, filtered by match. The next cursor is 0 at the
// end. A topic that exists during the whole listing is listed exactly once.
func (tx *Tx) Topics(cursor uint64, count int, match func(string) bool) (next uint64, list []TopicInfo) {
	return tx.core.topics.List(cursor, count, match)
}

// planBindings works out which bindings change, once it is known which queues there are to be.
func (p *queuePlan) planBindings() error {
	c, total := p.core, p.core.topics.Len()
	if p.set.Prune {
		total = 0
	}
	inSet, left := map[[2]string]bool{}, map[string]int{} // left: the bindings of a topic
	for i := range p.set.Bindings {
		b := &p.set.Bindings[i]
		before, found := c.topics.Binding(b.Topic, b.Queue)
		if _, counted := left[b.Topic]; !counted && !p.set.Prune {
			left[b.Topic] = len(c.topics.View().Bindings(b.Topic).All())
		}
		if p.set.Prune || !found {
			left[b.Topic]++
			total++
		}
		err := p.checkBinding(b, left[b.Topic], total)
		if err == nil && inSet[[2]string{b.Topic, b.Queue}] {
			err = fmt.Errorf("%w: the binding is there twice", ErrInvalid)
		}
		if err != nil {
			return fmt.Errorf("topic %.255q, queue %.255q: %w", b.Topic, b.Queue, err)
		}
		inSet[[2]string{b.Topic, b.Queue}] = true
		change := QueueChange{Action: QueueBind, Queue: b.Queue, Topic: b.Topic}
		for _, f := range before.Differing(&b.Binding) {
			change.Fields = append(change.Fields, QueueField{f.Header, f.From, f.To})
		}
		if found {
			change.Action = QueueRebind
		}
		if !found || len(change.Fields) > 0 {
			p.bindings = append(p.bindings, bindingChange{change, b.Binding})
		}
	}
	if p.set.Prune {
		for name, list := range c.topics.View().All() {
			for _, b := range list.All() {
				if _, stays := p.after[b.Queue]; stays && !inSet[[2]string{name, b.Queue}] {
					p.bindings = append(p.bindings, bindingChange{QueueChange: QueueChange{Action: QueueUnbind, Queue: b.Queue, Topic: name}})
				}
			}
		}
	}
	slices.SortFunc(p.bindings, func(a, b bindingChange) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.Queue, b.Queue))
	})
	return nil
}

// checkBinding validates a binding of the set, with which its topic has so many, and all have total.
func (p *queuePlan) checkBinding(b *TopicBinding, ofTopic, total int) error {
	limits := &p.core.cfg.Limits
	if _, stays := p.after[b.Queue]; !stays {
		if _, err := p.core.queueNamed(b.Queue); err != nil {
			return err
		}
		if p.set.Prune {
			return fmt.Errorf("%w: the queue is not in the definition, so PRUNE would delete it", ErrInvalid)
		}
	}
	if err := limits.CheckTopicName(b.Topic); err != nil {
		return err
	}
	if err := checkBinding(limits, &b.Binding); err != nil {
		return err
	}
	return checkBindingCount(b.Topic, ofTopic-1, total-1)
}

// applyBindings does what was planned of bindings.
func (p *queuePlan) applyBindings() {
	c := p.core
	for i := range p.bindings {
		if b := &p.bindings[i]; b.Action == QueueUnbind {
			c.unbind(b.Topic, b.Queue)
		} else {
			c.bind(b.Topic, b.to)
		}
	}
}
