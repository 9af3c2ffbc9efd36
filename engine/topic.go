package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/storage"
)

// A topic is a name under which a message is published to several queues: those that are bound to
// it, see publish.go. It exists while it has bindings, and a queue that is deleted leaves its
// topics in the same batch.
//
// The bindings of a topic are an immutable list. Each change makes a new one, which connections
// find in the Snapshot; two lists are the same if and only if their pointers are.

// BindingsMax bounds the bindings of a topic, and allBindingsMax those of all topics.
const (
	BindingsMax    = 1000
	allBindingsMax = 100_000
)

// Condition is what a binding asks of a message: a header of this name with a value that matches
// the pattern.
type Condition struct{ Header, Pattern string }

// Binding is a queue that gets the messages of a topic that meet all conditions.
type Binding struct {
	Queue      string
	Conditions []Condition
}

// record returns the binding as it is stored.
func (b *Binding) record() storage.Binding {
	var rec storage.Binding
	for _, c := range b.Conditions {
		rec.Headers = append(rec.Headers, Header{Name: []byte(c.Header), Value: []byte(c.Pattern)})
	}
	return rec
}

// bindings is the immutable list of a topic, in the order of its queues. nil: the topic has none.
type bindings struct{ list []Binding }

func (b *bindings) all() []Binding {
	if b == nil {
		return nil
	}
	return b.list
}

func compareQueue(b Binding, queue string) int { return strings.Compare(b.Queue, queue) }

// find returns the place of a queue in the list, and whether it is there.
func (b *bindings) find(queue string) (at int, found bool) {
	return slices.BinarySearchFunc(b.all(), queue, compareQueue)
}

// with returns the list with a binding added or replaced.
func (b *bindings) with(one Binding) *bindings {
	list := slices.Clone(b.all())
	at, found := b.find(one.Queue)
	if found {
		list[at] = one
	} else {
		list = slices.Insert(list, at, one)
	}
	return &bindings{list}
}

// without returns the list without the binding at a place; nil if that was the last one.
func (b *bindings) without(at int) *bindings {
	if len(b.list) == 1 {
		return nil
	}
	return &bindings{slices.Delete(slices.Clone(b.list), at, at+1)}
}

// topic is a topic in memory.
type topic struct {
	name                 string
	seq                  uint64 // its number in the roster
	bindings             *bindings
	published, unmatched uint64 // since the start: all messages, and those that met no binding
}

// topicTable is the component of topics.
type topicTable struct {
	byName map[string]*topic
	list   intrusive.Roster[topic]
	bound  int // bindings of all topics
	// Since the start, of topics that are gone or have never been as well.
	published, unmatched, copies uint64

	untimed
}

// reset keeps the counters, which belong to the process.
func (t *topicTable) reset() {
	*t = topicTable{byName: map[string]*topic{}, published: t.published, unmatched: t.unmatched, copies: t.copies}
}

// count returns the number of bindings of a topic.
func (t *topicTable) count(topic string) int {
	if one := t.byName[topic]; one != nil {
		return len(one.bindings.all())
	}
	return 0
}

// binding returns the binding of a queue to a topic, if there is one.
func (t *topicTable) binding(topic, queue string) (b Binding, found bool) {
	one := t.byName[topic]
	if one == nil {
		return b, false
	}
	at, found := one.bindings.find(queue)
	if !found {
		return b, false
	}
	return one.bindings.list[at], true
}

// TopicStats are the figures of all topics. The counters are those since the start.
type TopicStats struct {
	Topics, Bindings             int64
	Published, Unmatched, Copies uint64 // messages; those that met no binding; what queues have stored of them
}

func (t *topicTable) stats() TopicStats {
	return TopicStats{int64(len(t.byName)), int64(t.bound), t.published, t.unmatched, t.copies}
}

// check verifies invariant 31.
func (t *topicTable) check(c *core, bad report) {
	listed, bound, known := 0, 0, 0
	for one := range t.list.All() {
		listed++
		if t.byName[one.name] != one {
			bad(31, "topic %q is listed and not found under its name", one.name)
		}
		list := one.bindings.all()
		bound += len(list)
		if len(list) == 0 || len(list) > BindingsMax || !slices.IsSortedFunc(list, func(a, b Binding) int { return compareQueue(a, b.Queue) }) {
			bad(31, "topic %q has %d bindings, or not in order", one.name, len(list))
		}
		for i := range list {
			if q := c.queues.byName[list[i].Queue]; q == nil || !slices.Contains(q.topics, one.name) {
				bad(31, "topic %q has queue %q, which does not know", one.name, list[i].Queue)
			}
		}
		if shown, _ := c.out.snapshot.topics.get(one.name); shown != one.bindings {
			bad(31, "the snapshot has other bindings of topic %q", one.name)
		}
	}
	for _, q := range c.queues.byName {
		known += len(q.topics)
	}
	if listed != len(t.byName) || listed != c.out.snapshot.topics.len() || bound != t.bound || bound != known {
		bad(31, "%d topics are listed, %d found, %d in the snapshot; they have %d bindings, %d are counted, queues know %d",
			listed, len(t.byName), c.out.snapshot.topics.len(), bound, t.bound, known)
	}
}

// checkTopicName refuses what is no name of a topic. Rights to topics are patterns of names, as
// those to queues, and so are the rules.
func (l *Limits) checkTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a topic has at least one byte", ErrInvalid)
	case len(name) > l.QueueName:
		return fmt.Errorf("%w: the topic has %d bytes, the limit is %d", ErrTooBig, len(name), l.QueueName)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%w: the name of a topic has no control characters", ErrInvalid)
	}
	return nil
}

// checkBinding validates the conditions of a binding.
func (l *Limits) checkBinding(b *Binding) error {
	if len(b.Conditions) > l.Headers {
		return fmt.Errorf("%w: %s, the limit is %d", ErrTooBig, amount(len(b.Conditions), "header"), l.Headers)
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
	if err := c.cfg.Limits.checkTopicName(topic); err != nil {
		return false, err
	}
	if err := c.cfg.Limits.checkBinding(&b); err != nil {
		return false, err
	}
	if err := tx.afford(1 + c.topics.count(topic)/bindingsPerUnit); err != nil {
		return false, err
	}
	if _, found := c.topics.binding(topic, q.name); found {
		c.bind(topic, b)
		return false, nil
	}
	if err := checkBindingCount(topic, c.topics.count(topic), c.topics.bound); err != nil {
		return false, err
	}
	c.bind(topic, b)
	return true, nil
}

// bindingsPerUnit is the number of bindings that a unit of work pays for when they are copied.
const bindingsPerUnit = 64

// checkBindingCount refuses one more binding of a topic that has so many, and all have total.
func checkBindingCount(topic string, ofTopic, total int) error {
	if ofTopic >= BindingsMax {
		return fmt.Errorf("%w: topic %.80q has %s, which is the limit", ErrInvalid, topic, amount(ofTopic, "binding"))
	}
	if total >= allBindingsMax {
		return fmt.Errorf("%w: the topics have %s, which is the limit", ErrInvalid, amount(total, "binding"))
	}
	return nil
}

// bind adds or replaces a binding that has been checked.
func (c *core) bind(topic string, b Binding) {
	rec := b.record()
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateTopic, topic, b.Queue), rec.Append(nil))
	c.out.sync = true
	if c.addBinding(topic, b) {
		c.emit(Event{Kind: EventBound, Queue: b.Queue, Topic: topic})
	}
}

// addBinding adds or replaces a binding in memory, and reports whether it added one.
func (c *core) addBinding(name string, b Binding) bool {
	s := &c.topics
	t := s.byName[name]
	if t == nil {
		t = &topic{name: name}
		s.byName[name] = t
		t.seq = s.list.Add(t)
	}
	_, found := t.bindings.find(b.Queue)
	if !found {
		s.bound++
		q := c.queues.byName[b.Queue]
		q.topics = append(q.topics, name)
	}
	t.bindings = t.bindings.with(b)
	c.out.snapshot = c.out.snapshot.withTopic(name, t.bindings)
	return !found
}

// Unbind ends the binding of a queue to a topic, and reports whether there was one.
func (tx *Tx) Unbind(topic, queue string) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	t := c.topics.byName[topic]
	if t == nil {
		return false, nil
	}
	if _, found := t.bindings.find(queue); !found {
		return false, nil
	}
	if err := tx.afford(1 + len(t.bindings.all())/bindingsPerUnit); err != nil {
		return false, err
	}
	c.unbind(t, c.queues.byName[queue])
	return true, nil
}

// unbind removes the binding of a queue to a topic. The topic goes with its last one.
func (c *core) unbind(t *topic, q *queue) {
	s := &c.topics
	at, _ := t.bindings.find(q.name)
	t.bindings = t.bindings.without(at)
	q.topics = slices.DeleteFunc(q.topics, func(name string) bool { return name == t.name })
	s.bound--
	if t.bindings == nil {
		delete(s.byName, t.name)
		s.list.Remove(t.seq)
	}
	c.out.snapshot = c.out.snapshot.withTopic(t.name, t.bindings)
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, storage.StateTopic, t.name, q.name))
	c.out.sync = true
	c.emit(Event{Kind: EventUnbound, Queue: q.name, Topic: t.name})
}

// leaveTopics ends all bindings of a queue that is deleted.
func (c *core) leaveTopics(q *queue) {
	names := q.topics
	q.topics = nil // at once: there may be many
	for _, name := range names {
		t := c.topics.byName[name]
		c.spend(1 + len(t.bindings.all())/bindingsPerUnit)
		c.unbind(t, q)
	}
}

// TopicInfo describes a topic.
type TopicInfo struct {
	Name                 string
	Bindings             []Binding // by queue; shared, not to be changed
	Published, Unmatched uint64    // since the start: all messages, and those that met no binding
}

func (t *topic) info() TopicInfo {
	return TopicInfo{Name: t.name, Bindings: t.bindings.all(), Published: t.published, Unmatched: t.unmatched}
}

// Topic describes a topic; ok is false if no queue is bound to one of that name.
func (tx *Tx) Topic(name string) (info TopicInfo, ok bool) {
	t := tx.core.topics.byName[name]
	if t == nil {
		return TopicInfo{}, false
	}
	return t.info(), true
}

// Bound reports whether a queue is bound to a topic.
func (tx *Tx) Bound(topic, queue string) bool {
	_, found := tx.core.topics.binding(topic, queue)
	return found
}

// Topics lists up to count topics from a cursor on, filtered by match. The next cursor is 0 at the
// end. A topic that exists during the whole listing is listed exactly once.
func (tx *Tx) Topics(cursor uint64, count int, match func(string) bool) (next uint64, list []TopicInfo) {
	next = tx.core.topics.list.Walk(cursor, count, func(t *topic) {
		if match(t.name) {
			list = append(list, t.info())
		}
	})
	return next, list
}

// planBindings works out which bindings change, once it is known which queues there are to be.
func (p *queuePlan) planBindings() error {
	c, total := p.core, p.core.topics.bound
	if p.set.Prune {
		total = 0
	}
	inSet, left := map[[2]string]bool{}, map[string]int{} // left: the bindings of a topic
	for i := range p.set.Bindings {
		b := &p.set.Bindings[i]
		before, found := c.topics.binding(b.Topic, b.Queue)
		if _, counted := left[b.Topic]; !counted && !p.set.Prune {
			left[b.Topic] = c.topics.count(b.Topic)
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
		change := QueueChange{Action: QueueBind, Queue: b.Queue, Topic: b.Topic, Fields: before.differing(&b.Binding)}
		if found {
			change.Action = QueueRebind
		}
		if !found || len(change.Fields) > 0 {
			p.bindings = append(p.bindings, bindingChange{change, b.Binding})
		}
	}
	if p.set.Prune {
		for t := range c.topics.list.All() {
			for _, b := range t.bindings.all() {
				if _, stays := p.after[b.Queue]; stays && !inSet[[2]string{t.name, b.Queue}] {
					p.bindings = append(p.bindings, bindingChange{QueueChange: QueueChange{Action: QueueUnbind, Queue: b.Queue, Topic: t.name}})
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
	if err := limits.checkTopicName(b.Topic); err != nil {
		return err
	}
	if err := limits.checkBinding(&b.Binding); err != nil {
		return err
	}
	return checkBindingCount(b.Topic, ofTopic-1, total-1)
}

// applyBindings does what was planned of bindings.
func (p *queuePlan) applyBindings() {
	c := p.core
	for i := range p.bindings {
		if b := &p.bindings[i]; b.Action == QueueUnbind {
			c.unbind(c.topics.byName[b.Topic], c.queues.byName[b.Queue])
		} else {
			c.bind(b.Topic, b.to)
		}
	}
}
