package topic

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/storage"
)

// Condition is what a binding asks of a message: a header of this name with a value that matches
// the pattern.
type Condition struct{ Header, Pattern string }

// Binding is a queue that gets the messages of a topic that meet all conditions.
type Binding struct {
	Queue      string
	Conditions []Condition
}

// Record returns the binding as it is stored.
func (b *Binding) Record() storage.Binding {
	var rec storage.Binding
	for _, c := range b.Conditions {
		rec.Headers = append(rec.Headers, storage.Header{Name: []byte(c.Header), Value: []byte(c.Pattern)})
	}
	return rec
}

// Stored returns the binding of a queue that a record has.
func Stored(queue string, rec *storage.Binding) Binding {
	b := Binding{Queue: queue}
	for _, h := range rec.Headers {
		b.Conditions = append(b.Conditions, Condition{string(h.Name), string(h.Value)})
	}
	return b
}

// matches reports whether the headers of a message meet all conditions.
func (b *Binding) matches(headers []storage.Header) bool {
	for _, want := range b.Conditions {
		met := slices.ContainsFunc(headers, func(h storage.Header) bool {
			return string(h.Name) == want.Header && glob.Match(want.Pattern, string(h.Value))
		})
		if !met {
			return false
		}
	}
	return true
}

// Difference is a header whose patterns are not those of another binding; "none" stands for no pattern.
type Difference struct{ Header, From, To string }

// Differing lists the headers in which the conditions of two bindings differ, in order, with their patterns in quotes;
// those that only repeat or reorder others do not.
func (b *Binding) Differing(to *Binding) (all []Difference) {
	if slices.Equal(b.Conditions, to.Conditions) {
		return nil
	}
	from, wanted := b.patterns(), to.patterns()
	names := maps.Clone(from)
	maps.Copy(names, wanted)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if from[name] != wanted[name] {
			all = append(all, Difference{name, cmp.Or(from[name], "none"), cmp.Or(wanted[name], "none")})
		}
	}
	return all
}

// patterns returns the patterns of each header, in quotes and in order.
func (b *Binding) patterns() map[string]string {
	list := map[string][]string{}
	for _, c := range b.Conditions {
		list[c.Header] = append(list[c.Header], strconv.Quote(c.Pattern))
	}
	texts := map[string]string{}
	for name, patterns := range list {
		slices.Sort(patterns)
		texts[name] = strings.Join(slices.Compact(patterns), " ")
	}
	return texts
}

// Bindings is the immutable list of a topic, in the order of its queues. nil: the topic has none.
type Bindings struct{ list []Binding }

// All returns the bindings, which must not be changed.
func (b *Bindings) All() []Binding {
	if b == nil {
		return nil
	}
	return b.list
}

// Matching visits the queues whose conditions the headers of a message meet, in order.
func (b *Bindings) Matching(headers []storage.Header) iter.Seq[string] {
	return func(yield func(string) bool) {
		all := b.All()
		for i := range all {
			if all[i].matches(headers) && !yield(all[i].Queue) {
				return
			}
		}
	}
}

func compareQueue(b Binding, queue string) int { return strings.Compare(b.Queue, queue) }

// find returns the place of a queue in the list, and whether it is there.
func (b *Bindings) find(queue string) (at int, found bool) {
	return slices.BinarySearchFunc(b.All(), queue, compareQueue)
}

// with returns the list with a binding added or replaced.
func (b *Bindings) with(one Binding) *Bindings {
	list := slices.Clone(b.All())
	at, found := b.find(one.Queue)
	if found {
		list[at] = one
	} else {
		list = slices.Insert(list, at, one)
	}
	return &Bindings{list}
}

// without returns the list without the binding at a place; nil if that was the last one.
func (b *Bindings) without(at int) *Bindings {
	if len(b.list) == 1 {
		return nil
	}
	return &Bindings{slices.Delete(slices.Clone(b.list), at, at+1)}
}
