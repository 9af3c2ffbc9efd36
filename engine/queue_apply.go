package engine

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/internal/throttleset"
	"github.com/faisca/fila/storage"
)

// QueueSpec is a queue as a file describes it. What Options do not say is as
// CREATE would have it; a hook that is nil stays as it is, and so does a pause.
type QueueSpec struct {
	Name    string
	Options QueueOptions
	Hooks   [2]hook.Hook // by Kind
}

// TopicBinding is a binding as a file describes it.
type TopicBinding struct {
	Topic string
	Binding
}

// ThrottleSpec is a throttle or a pattern as a file describes it.
type ThrottleSpec struct {
	Key     string
	Options ThrottleOptions
}

// QueueSet is what queues there are to be, what topics they are bound to, and what throttles allow.
type QueueSet struct {
	Queues   []QueueSpec
	Bindings []TopicBinding
	Limits   []ThrottleSpec

	User   string // that asks, for the histories of hooks
	Prune  bool   // delete the queues that are not in the set, and end such bindings; if it has throttles, the others too
	Force  bool   // also queues with messages inside
	DryRun bool   // only say what would be done
}

// What a QueueChange does.
const (
	QueueCreate = "create"
	QueueAlter  = "alter"
	QueueDelete = "delete"
	QueueBind   = "bind"
	QueueRebind = "rebind" // replace the conditions of a binding
	QueueUnbind = "unbind"

	QueueThrottle   = "throttle"   // set a throttle that has no setting
	QueueRethrottle = "rethrottle" // set one that has
	QueueUnthrottle = "unthrottle" // delete its setting
)

// QueueChange is one line of a plan.
type QueueChange struct {
	Action   string
	Queue    string
	Fields   []QueueField // that differ; of a new queue, from what CREATE would make; of a binding, headers and patterns in quotes
	Messages int64        // that a deletion takes with it, as far as they are counted
	Topic    string       // of a binding
	Throttle string       // that changes; no queue and no topic is named then
}

// QueueField is a setting that changes; "none" stands for no queue, no script and no pattern.
type QueueField struct{ Name, From, To string }

// ApplyQueues makes the queues, bindings and throttles match a set, in one write: all of it or nothing.
// It returns what was changed: queues in the order of names, then bindings in that of topics, then throttles. A
// dead-letter queue that is named and not there is made, and belongs to the set of those that name
// it. The bindings of a queue that is deleted end with it.
func (tx *Tx) ApplyQueues(s *QueueSet) ([]QueueChange, error) {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return nil, err
	}
	if err := tx.afford(len(c.queues.byName)/queuesPerUnit + c.topics.Len()/queuesPerUnit); err != nil {
		return nil, err
	}
	p := queuePlan{core: c, set: s, after: map[string]storage.Queue{}, hooks: map[string][2]hook.Hook{}, dead: map[string]storage.Queue{}}
	if err := p.make(); err != nil {
		return nil, err
	}
	units, err := p.planLimits()
	if err := cmp.Or(err, tx.afford(units)); err != nil {
		return nil, err
	}
	changes := p.changes()
	if !s.DryRun {
		for i := range changes {
			if changes[i].Action == QueueDelete {
				if err := tx.keepAll(changes[i].Queue); err != nil {
					return nil, err
				}
			}
		}
		p.apply(changes)
		p.applyBindings()
		p.applyLimits()
	}
	for i := range p.bindings {
		changes = append(changes, p.bindings[i].QueueChange)
	}
	for i := range p.limits {
		changes = append(changes, p.limits[i].QueueChange)
	}
	return changes, nil
}

// queuePlan is what the queues of a set are to be.
type queuePlan struct {
	core  *core
	set   *QueueSet
	after map[string]storage.Queue // of those in the set
	hooks map[string][2]hook.Hook
	dead  map[string]storage.Queue // named as dead-letter queues, with the first that names them

	bindings []bindingChange
	limits   []limitsChange
}

// limitsChange is a throttle that changes; to is not used if its setting is deleted.
type limitsChange struct {
	QueueChange
	to storage.Throttle
}

// bindingChange is a binding that changes.
type bindingChange struct {
	QueueChange
	to Binding // not used if it ends
}

func (p *queuePlan) make() error {
	c := p.core
	inSet := map[string]bool{}
	for i := range p.set.Queues {
		spec := &p.set.Queues[i]
		if c.queues.byName[spec.Name] == nil {
			if err := c.cfg.Limits.CheckQueueName(spec.Name); err != nil {
				return fmt.Errorf("queue %.255q: %w", spec.Name, err)
			}
		}
		if inSet[spec.Name] {
			return fmt.Errorf("%w: queue %q is there twice", ErrInvalid, spec.Name)
		}
		inSet[spec.Name] = true
	}
	// Those that take dead messages are known first: they have no queue of that kind
	// themselves.
	for i := range p.set.Queues {
		if dlq := p.set.Queues[i].Options.DLQ; dlq != nil {
			p.dead[*dlq] = storage.Queue{}
		}
	}
	// Shorter names first: one that gets <name>.dlq comes before that.
	byLength := slices.SortedStableFunc(slices.Values(p.set.Queues), func(a, b QueueSpec) int { return len(a.Name) - len(b.Name) })
	for i := range byLength {
		if err := p.plan(&byLength[i]); err != nil {
			return fmt.Errorf("queue %q: %w", byLength[i].Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.dead)) {
		if err := p.planDead(name); err != nil {
			return err
		}
	}
	if err := p.check(); err != nil {
		return err
	}
	return p.planBindings()
}

// plan works out the settings of a queue of the set.
func (p *queuePlan) plan(spec *QueueSpec) error {
	c, o := p.core, &spec.Options
	set := storage.Queue{CreatedAt: c.now}
	q := c.queues.byName[spec.Name]
	if q != nil {
		set = q.set
	}
	set.Values, set.DLQ = c.cfg.QueueDefaults(), "" // what the set does not say is as by default
	if err := o.apply(spec.Name, &set); err != nil {
		return err
	}
	if q != nil {
		if err := q.checkReorder(&set.Values); err != nil {
			return err
		}
	}
	if _, isDead := p.dead[spec.Name]; isDead || set.DeadLetter {
		if o.DLQ != nil {
			return fmt.Errorf("%w: it takes the dead messages of others and can have no dead-letter queue of its own", ErrInvalid)
		}
		makeDLQ(&set)
	} else if o.DLQ == nil && !o.NoDLQ {
		set.DLQ = spec.Name + DLQSuffix
	}
	if o.DLQ != nil && c.queues.byName[*o.DLQ] == nil {
		if err := c.cfg.Limits.CheckQueueName(*o.DLQ); err != nil {
			return fmt.Errorf("its dead-letter queue: %w", err)
		}
	}
	if set.DLQ != "" && p.dead[set.DLQ].Values == (queueset.Values{}) {
		p.dead[set.DLQ] = set
	}
	p.after[spec.Name], p.hooks[spec.Name] = set, spec.Hooks
	return nil
}

// planDead works out the settings of a dead-letter queue, if the set does not.
func (p *queuePlan) planDead(name string) error {
	if _, ok := p.after[name]; ok {
		return nil
	}
	parent := p.dead[name]
	set := storage.Queue{Values: parent.Values.Inherited(), DeadLetter: true}
	if q := p.core.queues.byName[name]; q != nil {
		set = q.set
		if err := q.canBecomeDLQ(); err != nil {
			return err
		}
		if !set.DeadLetter {
			makeDLQ(&set)
		}
	}
	p.after[name] = set
	return nil
}

// check refuses what the queues outside the set do not agree with.
func (p *queuePlan) check() error {
	for _, name := range slices.Sorted(maps.Keys(p.core.queues.byName)) {
		q := p.core.queues.byName[name]
		if _, ok := p.after[name]; ok {
			continue
		}
		if p.set.Prune {
			if !p.set.Force && (q.figures.Total != 0 || !q.figures.Counted && q.keys.Len() > 0) {
				return fmt.Errorf("%q: %w", name, ErrQueueNotEmpty)
			}
			continue
		}
		if dlq, ok := p.after[q.set.DLQ]; ok && dlq.DLQ != "" {
			return fmt.Errorf("%w: %q cannot have a dead-letter queue, it is that of %q", ErrInvalid, q.set.DLQ, name)
		}
	}
	return nil
}

func (p *queuePlan) changes() []QueueChange {
	var all []QueueChange
	for _, name := range slices.Sorted(maps.Keys(p.after)) {
		after := p.after[name]
		q := p.core.queues.byName[name]
		change := QueueChange{Action: QueueCreate, Queue: name}
		before := storage.Queue{Values: p.core.cfg.QueueDefaults()}
		if q != nil {
			change.Action, before = QueueAlter, q.set
		} else if after.DeadLetter {
			before.Values[queueset.MaxAttempts] = 0
		}
		change.Fields = append(differing(&before, &after), p.hookFields(name)...)
		if q == nil || len(change.Fields) > 0 {
			all = append(all, change)
		}
	}
	if p.set.Prune {
		for _, name := range slices.Sorted(maps.Keys(p.core.queues.byName)) {
			if _, ok := p.after[name]; !ok {
				all = append(all, QueueChange{Action: QueueDelete, Queue: name, Messages: p.core.queues.byName[name].figures.Total})
			}
		}
	}
	return all
}

// differing lists the settings in which two queues differ, by the names that
// FILA.QUEUE INFO gives them.
func differing(a, b *storage.Queue) []QueueField {
	named := func(s string) string {
		if s == "" {
			return "none"
		}
		return s
	}
	flag := map[bool]string{false: "0", true: "1"}
	var all []QueueField
	for s, row := range queueset.All() {
		all = append(all, QueueField{row.Name, strconv.FormatUint(a.Values[s], 10), strconv.FormatUint(b.Values[s], 10)})
	}
	all = append(all, QueueField{"dlq", named(a.DLQ), named(b.DLQ)}, QueueField{"is_dlq", flag[a.DeadLetter], flag[b.DeadLetter]})
	return slices.DeleteFunc(all, func(f QueueField) bool { return f.From == f.To })
}

// hookFields lists the hooks of a queue that change, by their versions.
func (p *queuePlan) hookFields(name string) []QueueField {
	var out []QueueField
	for kind, h := range p.hooks[name] {
		if h == nil {
			continue
		}
		from := "none"
		if old := p.core.out.snapshot.Hook(name, hook.Kind(kind)); old != nil {
			if old.Source() == h.Source() {
				continue
			}
			from = old.Version()
		}
		out = append(out, QueueField{hook.Kind(kind).String(), from, h.Version()})
	}
	return out
}

// apply does what was planned of queues. Nothing of it can fail.
func (p *queuePlan) apply(changes []QueueChange) {
	c := p.core
	for i := range changes {
		name := changes[i].Queue
		q := c.queues.byName[name]
		if changes[i].Action == QueueDelete {
			c.removeQueue(q)
			c.emitQueue(EventDeleted, q)
			continue
		}
		set := p.after[name]
		for kind, h := range p.hooks[name] {
			if h != nil {
				*hookSource(&set, hook.Kind(kind)) = h.Source()
			}
		}
		if q == nil {
			set.CreatedAt = c.now
			c.addQueue(name, set)
			q = c.queues.byName[name]
		} else {
			c.alterQueue(q, set)
		}
		for kind, h := range p.hooks[name] {
			if h != nil {
				if old := c.out.snapshot.Hook(name, hook.Kind(kind)); old == nil || old.Source() != h.Source() {
					c.keepVersions(q, h, p.set.User)
				}
				c.out.snapshot = c.out.snapshot.withHook(name, hook.Kind(kind), h)
			}
		}
	}
}

// planLimits works out what changes of throttles, and returns its work in units. With Prune, those that the set does not
// have are deleted, unless it has none at all: files of before throttles could be in them leave them alone.
func (p *queuePlan) planLimits() (units int, err error) {
	c, inSet := p.core, map[string]bool{}
	for i := range p.set.Limits {
		spec := &p.set.Limits[i]
		to, err := throttleSetting(&spec.Options)
		if err = cmp.Or(c.cfg.Limits.CheckThrottleKey(spec.Key), err); err == nil && inSet[spec.Key] {
			err = fmt.Errorf("%w: it is there twice", ErrInvalid)
		}
		if err != nil {
			return 0, fmt.Errorf("throttle %.255q: %w", spec.Key, err)
		}
		inSet[spec.Key] = true
		units += c.order.Units(spec.Key, dispatch.Limits(to))
		var before storage.Throttle
		change := QueueChange{Action: QueueThrottle, Throttle: spec.Key}
		if now, ok := c.order.Throttle(spec.Key); ok && now.Pattern == "" {
			before = storage.Throttle{Rate: now.Rate, Burst: now.Burst, Concurrency: now.Concurrency, ByCost: now.ByCost, AdaptiveMin: now.Min}
		}
		if before != (storage.Throttle{}) {
			change.Action = QueueRethrottle
		}
		for _, f := range throttleset.Differing(&before, &to) {
			change.Fields = append(change.Fields, QueueField(f))
		}
		if len(change.Fields) > 0 {
			p.limits = append(p.limits, limitsChange{change, to})
		}
	}
	if p.set.Prune && len(inSet) > 0 {
		_, all := c.order.ListThrottles(0, math.MaxInt, false, func(key string) bool { return !inSet[key] })
		units += len(all)
		for i := range all {
			if all[i].Rate > 0 || all[i].Concurrency > 0 { // else it is held and has no setting
				p.limits = append(p.limits, limitsChange{QueueChange: QueueChange{Action: QueueUnthrottle, Throttle: all[i].Key}})
			}
		}
	}
	slices.SortFunc(p.limits, func(a, b limitsChange) int { return strings.Compare(a.Throttle, b.Throttle) })
	return (units + len(inSet)) / queuesPerUnit, nil
}

// applyLimits does what was planned of throttles.
func (p *queuePlan) applyLimits() {
	c := p.core
	for i := range p.limits {
		t := &p.limits[i]
		key := storage.AppendStateKey(nil, storage.StateThrottle, t.Throttle)
		if t.Action == QueueUnthrottle {
			c.order.DropThrottle(t.Throttle)
			c.out.batch.Delete(storage.State, key)
			continue
		}
		c.order.SetThrottle(t.Throttle, dispatch.Limits(t.to))
		c.out.batch.Put(storage.State, key, t.to.Append(nil))
	}
	if len(p.limits) > 0 {
		c.out.sync = true
		c.reclassifyAll()
	}
}
