package engine

import (
	"fmt"
	"math"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/plan"
	"github.com/faisca/fila/engine/topic"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

type (
	// QueueSpec is a queue as a file describes it.
	QueueSpec = plan.QueueSpec
	// ThrottleSpec is a throttle or a pattern as a file describes it.
	ThrottleSpec = plan.ThrottleSpec
	// QueueChange is one line of a plan.
	QueueChange = plan.Change
	// QueueField is a setting that changes.
	QueueField = plan.Field
)

// QueueAlter is the action of a change of a queue that exists.
const QueueAlter = plan.Alter

// QueueSet is what queues there are to be, what topics they are bound to, and what throttles allow.
type QueueSet struct {
	Queues        []QueueSpec
	Bindings      []TopicBinding
	ThrottleSpecs []ThrottleSpec

	User   string // that asks, for the histories of hooks
	Prune  bool   // delete the queues that are not in the set, and end such bindings; if it has throttles, the others too
	Force  bool   // also queues with messages inside
	DryRun bool   // only say what would be done
}

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
	p := queuePlan{core: c, set: s}
	if err := p.make(); err != nil {
		return nil, err
	}
	if err := tx.afford(p.throttleUnits()); err != nil {
		return nil, err
	}
	if !s.DryRun {
		for i := range p.queues.Steps {
			if q := &p.queues.Steps[i]; q.Action == plan.Delete {
				if err := tx.keepAll(q.Queue); err != nil {
					return nil, err
				}
			}
		}
		p.apply()
	}
	return p.changes(), nil
}

// queuePlan is what makes queues, bindings and throttles match a set.
type queuePlan struct {
	core *core
	set  *QueueSet

	queues    *plan.Queues
	bindings  []topic.Step
	throttles []plan.ThrottleStep
}

// make works out what is to be done.
func (p *queuePlan) make() (err error) {
	c, limits := p.core, &p.core.cfg.Limits
	set := plan.Set{Queues: p.set.Queues, ThrottleSpecs: p.set.ThrottleSpecs, Prune: p.set.Prune, Force: p.set.Force}
	there := &plan.Present{Queues: p.presentQueues(), Defaults: c.cfg.QueueDefaults(), Now: c.now, Limits: limits}
	if p.queues, err = plan.OfQueues(&set, there); err != nil {
		return err
	}
	if p.bindings, err = c.topics.Plan(p.set.Bindings, p.set.Prune, limits, p.mayBind); err != nil {
		return err
	}
	p.throttles, err = plan.OfThrottles(&set, p.presentThrottles(), limits)
	return err
}

// apply does what was planned. Nothing of it can fail.
func (p *queuePlan) apply() {
	for i := range p.queues.Steps {
		p.applyQueue(&p.queues.Steps[i])
	}
	for i := range p.bindings {
		if b := &p.bindings[i]; b.Removed {
			p.core.unbind(b.Topic, b.Queue)
		} else {
			p.core.bind(b.Topic, b.Binding)
		}
	}
	p.applyThrottles()
}

// changes returns the lines of the plan.
func (p *queuePlan) changes() (all []QueueChange) {
	for i := range p.queues.Steps {
		all = append(all, p.queues.Steps[i].Change)
	}
	for i := range p.bindings {
		all = append(all, shownBinding(&p.bindings[i]))
	}
	for i := range p.throttles {
		all = append(all, p.throttles[i].Change)
	}
	return all
}

// presentQueues returns the queues that there are, those in the set with their hooks.
func (p *queuePlan) presentQueues() map[string]*plan.Queue {
	c := p.core
	there := make(map[string]*plan.Queue, len(c.queues.byName))
	for name, q := range c.queues.byName {
		there[name] = q.present()
	}
	for i := range p.set.Queues {
		if q := there[p.set.Queues[i].Name]; q != nil {
			hooks, _ := c.out.snapshot.hooks.Get(q.Name)
			q.Hooks = hooks.by
		}
	}
	return there
}

// mayBind refuses a binding of a queue that is not there, or that would not be when a plan is carried out.
func (p *queuePlan) mayBind(queue string) error {
	if p.queues.Has(queue) {
		return nil
	}
	if _, err := p.core.queueNamed(queue); err != nil {
		return err
	}
	if p.set.Prune {
		return fmt.Errorf("%w: the queue is not in the definition, so PRUNE would delete it", ErrInvalid)
	}
	return nil
}

// presentThrottles returns the settings of the throttles of a set, and of all if it prunes. A throttle that is only held
// has none.
func (p *queuePlan) presentThrottles() map[string]storage.Throttle {
	c, s := p.core, p.set
	there := map[string]storage.Throttle{}
	add := func(i *ThrottleInfo) {
		if i.Rate > 0 || i.Concurrency > 0 {
			there[i.Key] = storage.Throttle{Rate: i.Rate, Burst: i.Burst, Concurrency: i.Concurrency, ByCost: i.ByCost, AdaptiveMin: i.Min}
		}
	}
	for i := range s.ThrottleSpecs {
		if now, ok := c.order.Throttle(s.ThrottleSpecs[i].Key); ok && now.Pattern == "" {
			add(&now)
		}
	}
	if s.Prune && len(s.ThrottleSpecs) > 0 {
		_, all := c.order.ListThrottles(0, math.MaxInt, false, func(key string) bool { _, known := there[key]; return !known })
		for i := range all {
			add(&all[i])
		}
	}
	return there
}

// throttleUnits is the work of what changes of throttles.
func (p *queuePlan) throttleUnits() int {
	units := len(p.set.ThrottleSpecs)
	for i := range p.throttles {
		if t := &p.throttles[i]; t.Action == plan.Unthrottle {
			units++
		} else {
			units += p.core.order.Units(t.Throttle, dispatch.Limits(t.To))
		}
	}
	return units / queuesPerUnit
}

// applyQueue does a step of a plan for queues.
func (p *queuePlan) applyQueue(s *plan.Step) {
	c, name := p.core, s.Queue
	q := c.queues.byName[name]
	switch s.Action {
	case plan.Delete:
		c.removeQueue(q)
		c.emitQueue(EventDeleted, q)
		return
	case plan.Create:
		c.addQueue(name, s.Set)
		q = c.queues.byName[name]
	default:
		c.alterQueue(q, s.Set)
	}
	for kind, h := range s.Hooks {
		if h == nil {
			continue
		}
		if old := c.out.snapshot.Hook(name, hook.Kind(kind)); old == nil || old.Source() != h.Source() {
			c.scripts.loaded(c, q, h, p.set.User)
		}
		c.out.snapshot = c.out.snapshot.withHook(name, hook.Kind(kind), h)
	}
}

// shownBinding returns the line of a binding that changes.
func shownBinding(s *topic.Step) QueueChange {
	change := QueueChange{Action: plan.Rebind, Queue: s.Queue, Topic: s.Topic}
	switch {
	case s.Added:
		change.Action = plan.Bind
	case s.Removed:
		change.Action = plan.Unbind
	}
	for _, f := range s.Fields {
		change.Fields = append(change.Fields, QueueField{Name: f.Header, From: f.From, To: f.To})
	}
	return change
}

// applyThrottles does what was planned of throttles.
func (p *queuePlan) applyThrottles() {
	c := p.core
	for i := range p.throttles {
		t := &p.throttles[i]
		key := storage.AppendStateKey(nil, storage.StateThrottle, t.Throttle)
		if t.Action == plan.Unthrottle {
			c.order.DropThrottle(t.Throttle)
			c.out.batch.Delete(storage.State, key)
			continue
		}
		c.order.SetThrottle(t.Throttle, dispatch.Limits(t.To))
		c.out.batch.Put(storage.State, key, t.To.Append(nil))
	}
	if len(p.throttles) > 0 {
		c.out.sync = true
		c.reclassifyAll()
	}
}
