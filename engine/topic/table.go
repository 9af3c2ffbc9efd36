package topic

import (
	"iter"
	"slices"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/internal/ordered"
)

// Most bounds the bindings of a topic, and MostOfAll those of all topics. The caller keeps the bounds.
const (
	Most      = 1000
	MostOfAll = 100_000
)

// topic is a topic with bindings.
type topic struct {
	name                 string
	seq                  uint64 // its number in the roster
	bindings             *Bindings
	published, unmatched uint64 // since the start: all messages, and those that met no binding
}

// Table has all topics. The zero value has none.
type Table struct {
	byName  map[string]*topic
	byQueue map[string][]string // names of the topics, in the order of their bindings
	list    intrusive.Roster[topic]
	bound   int // bindings of all topics
	view    View
	// Since the start, of topics that are gone or have never been as well.
	published, unmatched, copies uint64
}

// View is the bindings of all topics at one moment. Any goroutine may read it.
type View struct{ byName ordered.Map[*Bindings] }

// Bindings returns those of a topic, nil if it has none.
func (v View) Bindings(name string) *Bindings {
	b, _ := v.byName.Get(name)
	return b
}

// All visits the topics with their bindings, in the order of their names.
func (v View) All() iter.Seq2[string, *Bindings] { return v.byName.From("") }

// View returns the present bindings.
func (t *Table) View() View { return t.view }

// Reset removes all topics. The counters go on.
func (t *Table) Reset() {
	*t = Table{
		byName: map[string]*topic{}, byQueue: map[string][]string{},
		published: t.published, unmatched: t.unmatched, copies: t.copies,
	}
}

// Len returns the number of bindings of all topics.
func (t *Table) Len() int { return t.bound }

// Of returns the names of the topics that a queue is bound to. The list is shared, and not to be changed.
func (t *Table) Of(queue string) []string { return t.byQueue[queue] }

// Binding returns the binding of a queue to a topic, if there is one.
func (t *Table) Binding(name, queue string) (b Binding, found bool) {
	list := t.view.Bindings(name)
	at, found := list.find(queue)
	if !found {
		return b, false
	}
	return list.list[at], true
}

// Bind adds or replaces a binding, and reports whether it added one.
func (t *Table) Bind(name string, b Binding) bool {
	one := t.byName[name]
	if one == nil {
		one = &topic{name: name}
		t.byName[name] = one
		one.seq = t.list.Add(one)
	}
	_, found := one.bindings.find(b.Queue)
	if !found {
		t.bound++
		t.byQueue[b.Queue] = append(t.byQueue[b.Queue], name)
	}
	one.bindings = one.bindings.with(b)
	t.view.byName = t.view.byName.With(name, one.bindings)
	return !found
}

// Unbind removes the binding of a queue to a topic, which must be there. The topic goes with its last one.
func (t *Table) Unbind(name, queue string) {
	names := t.byQueue[queue]
	at := slices.Index(names, name)
	if names = slices.Delete(names, at, at+1); len(names) == 0 {
		delete(t.byQueue, queue)
	} else {
		t.byQueue[queue] = names
	}
	t.remove(name, queue)
}

// UnbindAll removes the bindings of a queue to all topics, and visits their names before they are removed.
func (t *Table) UnbindAll(queue string, visit func(name string)) {
	names := t.byQueue[queue]
	delete(t.byQueue, queue) // at once: there may be many
	for _, name := range names {
		visit(name)
		t.remove(name, queue)
	}
}

func (t *Table) remove(name, queue string) {
	one := t.byName[name]
	at, _ := one.bindings.find(queue)
	t.bound--
	if one.bindings = one.bindings.without(at); one.bindings != nil {
		t.view.byName = t.view.byName.With(name, one.bindings)
		return
	}
	delete(t.byName, name)
	t.list.Remove(one.seq)
	t.view.byName = t.view.byName.Without(name)
}

// Published counts a message that was published, whether a queue has met its binding, and how many have stored it.
func (t *Table) Published(name string, matched bool, copies int) {
	t.published++
	t.copies += uint64(copies)
	one := t.byName[name]
	if one != nil {
		one.published++
	}
	if matched {
		return
	}
	t.unmatched++
	if one != nil {
		one.unmatched++
	}
}

// Stats are the figures of all topics. The counters are those since the start.
type Stats struct {
	Topics, Bindings             int64
	Published, Unmatched, Copies uint64 // messages; those that met no binding; what queues have stored of them
}

// Stats returns the figures of all topics.
func (t *Table) Stats() Stats {
	return Stats{int64(len(t.byName)), int64(t.bound), t.published, t.unmatched, t.copies}
}

// Info describes a topic.
type Info struct {
	Name                 string
	Bindings             []Binding // by queue; shared, not to be changed
	Published, Unmatched uint64    // since the start: all messages, and those that met no binding
}

func (t *topic) info() Info {
	return Info{Name: t.name, Bindings: t.bindings.All(), Published: t.published, Unmatched: t.unmatched}
}

// Info describes a topic; ok is false if no queue is bound to one of that name.
func (t *Table) Info(name string) (info Info, ok bool) {
	one := t.byName[name]
	if one == nil {
		return Info{}, false
	}
	return one.info(), true
}

// List lists up to count topics from a cursor on, filtered by match. The next cursor is 0 at the
// end. A topic that exists during the whole listing is listed exactly once.
func (t *Table) List(cursor uint64, count int, match func(string) bool) (next uint64, list []Info) {
	next = t.list.Walk(cursor, count, func(one *topic) {
		if match(one.name) {
			list = append(list, one.info())
		}
	})
	return next, list
}

// Report takes the number of an invariant and a description of what breaks it.
type Report func(no int, format string, args ...any)

// Check verifies invariant 31. exists reports whether there is a queue of a name.
func (t *Table) Check(exists func(queue string) bool, bad Report) {
	listed, bound, known := 0, 0, 0
	for one := range t.list.All() {
		listed++
		if t.byName[one.name] != one {
			bad(31, "topic %q is listed and not found under its name", one.name)
		}
		list := one.bindings.All()
		bound += len(list)
		if len(list) == 0 || len(list) > Most || !slices.IsSortedFunc(list, func(a, b Binding) int { return compareQueue(a, b.Queue) }) {
			bad(31, "topic %q has %d bindings, or not in order", one.name, len(list))
		}
		for i := range list {
			if !exists(list[i].Queue) || !slices.Contains(t.byQueue[list[i].Queue], one.name) {
				bad(31, "topic %q has queue %q, which does not know", one.name, list[i].Queue)
			}
		}
		if t.view.Bindings(one.name) != one.bindings {
			bad(31, "the view has other bindings of topic %q", one.name)
		}
	}
	for _, names := range t.byQueue {
		known += len(names)
	}
	if listed != len(t.byName) || listed != t.view.byName.Len() || bound != t.bound || bound != known {
		bad(31, "%d topics are listed, %d found, %d in the view; they have %d bindings, %d are counted, queues know %d",
			listed, len(t.byName), t.view.byName.Len(), bound, t.bound, known)
	}
}
