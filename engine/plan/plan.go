// Package plan has the settings of queues and throttles that operators give, and the plan that makes queues and throttles
// match a file. It compares values: what there is with what there is to be. It knows no messages, stores or batches, and
// carries nothing out.
//
//	a command   o.Apply(name, &set), q.CheckReorder(...)   checks, before anything has changed
//	a file      p, err := OfQueues(&set, &present)         what is to be done with queues; refuses what cannot be
//	            OfThrottles(&set, present, limits)     the same of throttles
//	            each step is carried out, unless it is a dry run; nothing of it can fail
package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// QueueSpec is a queue as a file describes it. What Options do not say is as
// CREATE would have it; a hook that is nil stays as it is, and so does a pause.
type QueueSpec struct {
	Name    string
	Options Options
	Hooks   [2]hook.Hook // by Kind
}

// Set is what queues and throttles there are to be.
type Set struct {
	Queues        []QueueSpec
	ThrottleSpecs []ThrottleSpec

	Prune bool // delete the queues that are not in the set; if it has throttles, the others too
	Force bool // also queues with messages inside
}

// What a Change does.
const (
	Create = "create"
	Alter  = "alter"
	Delete = "delete"
	Bind   = "bind"
	Rebind = "rebind" // replace the conditions of a binding
	Unbind = "unbind"

	Throttle   = "throttle"   // set a throttle that has no setting
	Rethrottle = "rethrottle" // set one that has
	Unthrottle = "unthrottle" // delete its setting
)

// Change is one line of a plan.
type Change struct {
	Action   string
	Queue    string
	Fields   []Field // that differ; of a new queue, from what CREATE would make; of a binding, headers and patterns in quotes
	Messages int64   // that a deletion takes with it, as far as they are counted
	Topic    string  // of a binding
	Throttle string  // that changes; no queue and no topic is named then
}

// Field is a setting that changes; "none" stands for no queue, no script and no pattern.
type Field struct{ Name, From, To string }

// Present is what queues there are.
type Present struct {
	Queues   map[string]*Queue
	Defaults queueset.Values // of a queue that is created without options
	Now      int64           // when new queues are created, in Unix nanoseconds
	Limits   *limits.Limits
}

// Step is a queue that changes.
type Step struct {
	Change
	Set   storage.Queue // what it is to have, the sources of its hooks included; not used if it is deleted
	Hooks [2]hook.Hook  // that the set gives it; nil: that one stays
}

// Queues is a plan for the queues of a set.
type Queues struct {
	Steps []Step // in the order of names; deletions are the last

	set   *Set
	there *Present
	after map[string]storage.Queue // of those in the set
	hooks map[string][2]hook.Hook
	dead  map[string]storage.Queue // named as dead-letter queues, with the first that names them
}

// OfQueues plans the changes that make queues match a set. A dead-letter queue that is named and not there is made, and
// belongs to the set of those that name it. Errors are those of package refusals.
func OfQueues(set *Set, there *Present) (*Queues, error) {
	p := &Queues{set: set, there: there, after: map[string]storage.Queue{}, hooks: map[string][2]hook.Hook{}, dead: map[string]storage.Queue{}}
	if err := p.settings(); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	p.steps()
	return p, nil
}

// Has reports whether a queue belongs to the set.
func (p *Queues) Has(name string) bool {
	_, is := p.after[name]
	return is
}

// settings works out the settings of all queues of the set.
func (p *Queues) settings() error {
	inSet := map[string]bool{}
	for i := range p.set.Queues {
		spec := &p.set.Queues[i]
		if p.there.Queues[spec.Name] == nil {
			if err := p.there.Limits.CheckQueueName(spec.Name); err != nil {
				return fmt.Errorf("queue %.255q: %w", spec.Name, err)
			}
		}
		if inSet[spec.Name] {
			return fmt.Errorf("%w: queue %q is there twice", refusals.ErrInvalid, spec.Name)
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
		if err := p.queue(&byLength[i]); err != nil {
			return fmt.Errorf("queue %q: %w", byLength[i].Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.dead)) {
		if err := p.deadLetter(name); err != nil {
			return err
		}
	}
	return nil
}

// queue works out the settings of a queue of the set.
func (p *Queues) queue(spec *QueueSpec) error {
	o, set := &spec.Options, storage.Queue{CreatedAt: p.there.Now}
	q := p.there.Queues[spec.Name]
	if q != nil {
		set = *q.Set
	}
	set.Values, set.DLQ = p.there.Defaults, "" // what the set does not say is as by default
	if err := o.Apply(spec.Name, &set); err != nil {
		return err
	}
	if q != nil {
		if err := q.CheckReorder(&set.Values); err != nil {
			return err
		}
	}
	if _, isDead := p.dead[spec.Name]; isDead || set.DeadLetter {
		if o.DLQ != nil {
			return fmt.Errorf("%w: it takes the dead messages of others and can have no dead-letter queue of its own", refusals.ErrInvalid)
		}
		MakeDLQ(&set)
	} else if o.DLQ == nil && !o.NoDLQ {
		set.DLQ = spec.Name + DLQSuffix
	}
	if o.DLQ != nil && p.there.Queues[*o.DLQ] == nil {
		if err := p.there.Limits.CheckQueueName(*o.DLQ); err != nil {
			return fmt.Errorf("its dead-letter queue: %w", err)
		}
	}
	if set.DLQ != "" && p.dead[set.DLQ].Values == (queueset.Values{}) {
		p.dead[set.DLQ] = set
	}
	p.after[spec.Name], p.hooks[spec.Name] = set, spec.Hooks
	return nil
}

// deadLetter works out the settings of a dead-letter queue, if the set does not.
func (p *Queues) deadLetter(name string) error {
	if p.Has(name) {
		return nil
	}
	parent := p.dead[name]
	set := storage.Queue{Values: parent.Values.Inherited(), DeadLetter: true, CreatedAt: p.there.Now}
	if q := p.there.Queues[name]; q != nil {
		set = *q.Set
		if err := q.CanBecomeDLQ(); err != nil {
			return err
		}
		if !set.DeadLetter {
			MakeDLQ(&set)
		}
	}
	p.after[name] = set
	return nil
}

// check refuses what the queues outside the set do not agree with.
func (p *Queues) check() error {
	for _, name := range slices.Sorted(maps.Keys(p.there.Queues)) {
		q := p.there.Queues[name]
		if p.Has(name) {
			continue
		}
		if p.set.Prune {
			if !p.set.Force && !q.Empty {
				return fmt.Errorf("%q: %w", name, refusals.ErrQueueNotEmpty)
			}
			continue
		}
		if dlq, ok := p.after[q.Set.DLQ]; ok && dlq.DLQ != "" {
			return fmt.Errorf("%w: %q cannot have a dead-letter queue, it is that of %q", refusals.ErrInvalid, q.Set.DLQ, name)
		}
	}
	return nil
}

// steps lists what changes.
func (p *Queues) steps() {
	for _, name := range slices.Sorted(maps.Keys(p.after)) {
		s := Step{Change: Change{Action: Create, Queue: name}, Set: p.after[name], Hooks: p.hooks[name]}
		q, before := p.there.Queues[name], storage.Queue{Values: p.there.Defaults}
		if q != nil {
			s.Action, before = Alter, *q.Set
		} else if s.Set.DeadLetter {
			before.Values[queueset.MaxAttempts] = 0
		}
		s.Fields = append(differing(&before, &s.Set), s.hookFields(q)...)
		for kind, h := range s.Hooks {
			if h != nil {
				*HookSource(&s.Set, hook.Kind(kind)) = h.Source()
			}
		}
		if q == nil || len(s.Fields) > 0 {
			p.Steps = append(p.Steps, s)
		}
	}
	if p.set.Prune {
		for _, name := range slices.Sorted(maps.Keys(p.there.Queues)) {
			if !p.Has(name) {
				p.Steps = append(p.Steps, Step{Change: Change{Action: Delete, Queue: name, Messages: p.there.Queues[name].Messages}})
			}
		}
	}
}

// differing lists the settings in which two queues differ, by the names that
// FILA.QUEUE INFO gives them.
func differing(a, b *storage.Queue) []Field {
	named := func(s string) string {
		if s == "" {
			return "none"
		}
		return s
	}
	flag := map[bool]string{false: "0", true: "1"}
	var all []Field
	for s, row := range queueset.All() {
		all = append(all, Field{row.Name, strconv.FormatUint(a.Values[s], 10), strconv.FormatUint(b.Values[s], 10)})
	}
	all = append(all, Field{"dlq", named(a.DLQ), named(b.DLQ)}, Field{"is_dlq", flag[a.DeadLetter], flag[b.DeadLetter]})
	return slices.DeleteFunc(all, func(f Field) bool { return f.From == f.To })
}

// hookFields lists the hooks of a queue that change, by their versions; q is nil for a new queue.
func (s *Step) hookFields(q *Queue) []Field {
	var out []Field
	for kind, h := range s.Hooks {
		if h == nil {
			continue
		}
		from := "none"
		if q != nil && q.Hooks[kind] != nil {
			if q.Hooks[kind].Source() == h.Source() {
				continue
			}
			from = q.Hooks[kind].Version()
		}
		out = append(out, Field{hook.Kind(kind).String(), from, h.Version()})
	}
	return out
}
