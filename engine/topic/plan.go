package topic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/glob"
)

// CheckBinding refuses a binding of a topic that cannot be, or that is one too many. Errors are those of package refusals.
func (t *Table) CheckBinding(name string, b *Binding, l *limits.Limits) error {
	if err := cmp.Or(l.CheckTopicName(name), b.check(l)); err != nil {
		return err
	}
	if _, found := t.Binding(name, b.Queue); found {
		return nil
	}
	return checkCount(name, len(t.view.Bindings(name).All()), t.bound)
}

// check refuses conditions that cannot be.
func (b *Binding) check(l *limits.Limits) error {
	if len(b.Conditions) > l.Headers {
		return fmt.Errorf("%w: %s, the limit is %d", refusals.ErrTooBig, errtext.Amount(len(b.Conditions), "header"), l.Headers)
	}
	for _, c := range b.Conditions {
		switch {
		case c.Header == "":
			return fmt.Errorf("%w: a header name has at least one byte", refusals.ErrInvalid)
		case len(c.Header) > l.HeaderName:
			return fmt.Errorf("%w: HEADER name of %d bytes, the limit is %d", refusals.ErrTooBig, len(c.Header), l.HeaderName)
		case len(c.Pattern) > l.HeaderValue:
			return fmt.Errorf("%w: HEADER pattern of %d bytes, the limit is %d", refusals.ErrTooBig, len(c.Pattern), l.HeaderValue)
		}
		if err := glob.Check(c.Pattern); err != nil {
			return fmt.Errorf("%w: the pattern %.80q of header %.80q %w", refusals.ErrInvalid, c.Pattern, c.Header, err)
		}
	}
	return nil
}

// checkCount refuses one more binding of a topic that has so many, and all have total.
func checkCount(name string, ofTopic, total int) error {
	if ofTopic >= Most {
		return fmt.Errorf("%w: topic %.80q has %s, which is the limit", refusals.ErrInvalid, name, errtext.Amount(ofTopic, "binding"))
	}
	if total >= MostOfAll {
		return fmt.Errorf("%w: the topics have %s, which is the limit", refusals.ErrInvalid, errtext.Amount(total, "binding"))
	}
	return nil
}

// Wanted is a binding that there is to be.
type Wanted struct {
	Topic string
	Binding
}

// Step is a binding that changes.
type Step struct {
	Wanted         // of one that is removed, only the topic and the queue
	Fields         []Difference
	Added, Removed bool // neither: its conditions are replaced
}

// Plan lists what has bindings match those that are wanted, in the order of topics and queues. may returns an error for a queue
// that cannot be bound. With prune, other bindings of queues that may be bound are removed.
// Errors are those of package refusals.
func (t *Table) Plan(wanted []Wanted, prune bool, l *limits.Limits, may func(queue string) error) ([]Step, error) {
	var steps []Step
	total := t.bound
	if prune {
		total = 0
	}
	inSet, of := map[[2]string]bool{}, map[string]int{} // of: the bindings that a topic will have
	for i := range wanted {
		b := &wanted[i]
		before, found := t.Binding(b.Topic, b.Queue)
		if _, counted := of[b.Topic]; !counted && !prune {
			of[b.Topic] = len(t.view.Bindings(b.Topic).All())
		}
		if prune || !found {
			of[b.Topic]++
			total++
		}
		err := cmp.Or(may(b.Queue), l.CheckTopicName(b.Topic), b.check(l), checkCount(b.Topic, of[b.Topic]-1, total-1))
		if err == nil && inSet[[2]string{b.Topic, b.Queue}] {
			err = fmt.Errorf("%w: the binding is there twice", refusals.ErrInvalid)
		}
		if err != nil {
			return nil, fmt.Errorf("topic %.255q, queue %.255q: %w", b.Topic, b.Queue, err)
		}
		inSet[[2]string{b.Topic, b.Queue}] = true
		if s := (Step{Wanted: *b, Fields: before.Differing(&b.Binding), Added: !found}); s.Added || len(s.Fields) > 0 {
			steps = append(steps, s)
		}
	}
	if prune {
		for name, list := range t.view.All() {
			for _, b := range list.All() {
				if !inSet[[2]string{name, b.Queue}] && may(b.Queue) == nil {
					steps = append(steps, Step{Wanted: Wanted{name, Binding{Queue: b.Queue}}, Removed: true})
				}
			}
		}
	}
	slices.SortFunc(steps, func(a, b Step) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.Queue, b.Queue))
	})
	return steps, nil
}
