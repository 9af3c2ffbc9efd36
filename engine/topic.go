package engine

import (
	"github.com/faisca/fila/engine/topic"
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
	// TopicBinding is a binding as a file describes it.
	TopicBinding = topic.Wanted
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
	if _, err := c.queueNamed(b.Queue); err != nil {
		return false, err
	}
	if err := c.topics.CheckBinding(topic, &b, &c.cfg.Limits); err != nil {
		return false, err
	}
	if err := tx.afford(c.bindUnits(topic)); err != nil {
		return false, err
	}
	return c.bind(topic, b), nil
}

// bindingsPerUnit is the number of bindings that a unit of work pays for when they are copied.
const bindingsPerUnit = 64

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
	if err := tx.afford(c.bindUnits(topic)); err != nil {
		return false, err
	}
	c.unbind(topic, queue)
	return true, nil
}

// bindUnits is the work of adding or removing one binding of a topic.
func (c *core) bindUnits(topic string) int {
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
		c.spend(c.bindUnits(topic))
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
