package topic

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/storage"
)

func newTable() *Table {
	t := new(Table)
	t.Reset()
	return t
}

func headers(pairs ...string) (list []storage.Header) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, storage.Header{Name: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	return list
}

func TestABindingAsksForAllOfItsConditions(t *testing.T) {
	table := newTable()
	table.Bind("t", Binding{Queue: "c"})
	table.Bind("t", Binding{"a", []Condition{{"kind", "order.*"}}})
	table.Bind("t", Binding{"b", []Condition{{"kind", "order.*"}, {"country", "d?"}}})
	for _, test := range []struct {
		headers []storage.Header
		queues  []string
	}{
		{nil, []string{"c"}},
		{headers("kind", "order.new"), []string{"a", "c"}},
		{headers("Kind", "order.new"), []string{"c"}},
		{headers("country", "de", "kind", "x", "kind", "order.new"), []string{"a", "b", "c"}},
	} {
		if got := slices.Collect(table.View().Bindings("t").Matching(test.headers)); !slices.Equal(got, test.queues) {
			t.Errorf("headers %q: queues %v, want %v", test.headers, got, test.queues)
		}
	}
	for range table.View().Bindings("none").Matching(nil) {
		t.Error("a topic without bindings has a queue")
	}
}

func TestBindingsThatDifferAreShownByHeader(t *testing.T) {
	from := Binding{"q", []Condition{{"a", "1"}, {"b", "2"}, {"b", "3"}}}
	for _, test := range []struct {
		to   []Condition
		want []Difference
	}{
		{[]Condition{{"b", "3"}, {"a", "1"}, {"b", "2"}, {"a", "1"}}, nil},
		{[]Condition{{"b", "3"}, {"c", "x"}}, []Difference{{"a", `"1"`, "none"}, {"b", `"2" "3"`, `"3"`}, {"c", "none", `"x"`}}},
	} {
		if got := from.Differing(&Binding{"q", test.to}); !reflect.DeepEqual(got, test.want) {
			t.Errorf("to %v: %v, want %v", test.to, got, test.want)
		}
	}
	rec := from.Record()
	if again := Stored("q", &rec); !reflect.DeepEqual(again, from) {
		t.Errorf("stored as %v", again)
	}
}

func TestATopicCountsWhatIsPublished(t *testing.T) {
	table := newTable()
	table.Bind("t", Binding{Queue: "q"})
	table.Published("t", true, 3)
	table.Published("t", false, 0)
	table.Published("gone", false, 0)
	if i, ok := table.Info("t"); !ok || i.Published != 2 || i.Unmatched != 1 || len(i.Bindings) != 1 {
		t.Errorf("%+v, %v", i, ok)
	}
	if _, ok := table.Info("gone"); ok {
		t.Error("a topic without bindings is there")
	}
	want := Stats{Topics: 1, Bindings: 1, Published: 3, Unmatched: 2, Copies: 3}
	if got := table.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	table.Reset()
	want.Topics, want.Bindings = 0, 0
	if got := table.Stats(); got != want {
		t.Errorf("after a reset %+v, want %+v", got, want)
	}
}

// Random bindings keep the invariants, and a view keeps its bindings whatever changes later.
func TestBindingsAreFoundFromBothSides(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		table, bound := newTable(), map[[2]string]int{}
		for step := range 200 {
			name, queue := fmt.Sprint("t", rng.IntN(4)), fmt.Sprint("q", rng.IntN(6))
			before, shown := table.View(), fmt.Sprint(table.View().Bindings(name).All())
			_, is := bound[[2]string{name, queue}]
			switch n := rng.IntN(20); {
			case n == 0:
				var left []string
				table.UnbindAll(queue, func(name string) {
					left = append(left, name)
					delete(bound, [2]string{name, queue})
				})
				if len(table.Of(queue)) > 0 {
					t.Fatalf("seed %d: %s left %v and has %v", seed, queue, left, table.Of(queue))
				}
			case n < 8:
				if is {
					table.Unbind(name, queue)
					delete(bound, [2]string{name, queue})
				}
			default:
				b := Binding{queue, []Condition{{"step", fmt.Sprint(step)}}}
				if table.Bind(name, b) == is {
					t.Fatalf("seed %d: %s was bound to %s: %v", seed, queue, name, is)
				}
				bound[[2]string{name, queue}] = step
			}
			if again := fmt.Sprint(before.Bindings(name).All()); again != shown {
				t.Fatalf("seed %d: the view had %s and has %s", seed, shown, again)
			}
			table.Check(func(string) bool { return true }, func(no int, format string, args ...any) {
				t.Fatalf("seed %d: invariant %d: %s", seed, no, fmt.Sprintf(format, args...))
			})
			if table.Len() != len(bound) {
				t.Fatalf("seed %d: %d bindings, want %d", seed, table.Len(), len(bound))
			}
			for of, step := range bound {
				if b, found := table.Binding(of[0], of[1]); !found || b.Conditions[0].Pattern != fmt.Sprint(step) || !slices.Contains(table.Of(of[1]), of[0]) {
					t.Fatalf("seed %d: the binding of %v is %v, %v", seed, of, b, found)
				}
			}
		}
		all := 0
		for name, list := range table.View().All() {
			all += len(list.All())
			if i, _ := table.Info(name); len(i.Bindings) != len(list.All()) {
				t.Fatalf("seed %d: %s has %v", seed, name, i.Bindings)
			}
		}
		if all != len(bound) {
			t.Fatalf("seed %d: %d bindings are shown, want %d", seed, all, len(bound))
		}
	}
}

func TestAListingSeesEachTopicOnce(t *testing.T) {
	table := newTable()
	for i := range 25 {
		table.Bind(fmt.Sprint("t", i), Binding{Queue: "q"})
	}
	seen, cursor := map[string]int{}, uint64(0)
	for first := true; first || cursor != 0; first = false {
		next, page := table.List(cursor, 4, func(name string) bool { return name != "t3" })
		for _, i := range page {
			seen[i.Name]++
		}
		table.Bind(fmt.Sprint("new", next), Binding{Queue: "q"})
		table.Unbind(fmt.Sprint("new", next), "q")
		cursor = next
	}
	if len(seen) != 24 {
		t.Errorf("%d topics are listed", len(seen))
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s is listed %d times", name, n)
		}
	}
}

func TestAPlanHasTheBindingsThatChange(t *testing.T) {
	table, l := newTable(), limits.Default()
	table.Bind("t", Binding{"a", []Condition{{"kind", "x"}}})
	table.Bind("t", Binding{Queue: "b"})
	table.Bind("t", Binding{Queue: "gone"})
	table.Bind("u", Binding{Queue: "a"})
	may := func(queue string) error {
		if queue == "gone" {
			return refusals.ErrNoQueue
		}
		return nil
	}
	plan := func(prune bool, wanted ...Wanted) string {
		steps, err := table.Plan(wanted, prune, &l, may)
		if err != nil {
			return err.Error()
		}
		text := ""
		for _, s := range steps {
			text += fmt.Sprint(s.Topic, s.Queue, s.Added, s.Removed, s.Fields, ";")
		}
		return text
	}
	same, other := Wanted{"t", Binding{Queue: "b"}}, Wanted{"t", Binding{"a", []Condition{{"kind", "y"}}}}
	added := Wanted{"s", Binding{Queue: "c"}}
	want := `sctrue false [];tafalse false [{kind "x" "y"}];`
	if got := plan(false, same, other, added); got != want {
		t.Errorf("the plan is %s, want %s", got, want)
	}
	if got := plan(true, same, other, added); got != want+"uafalse true [];" {
		t.Errorf("with those that are removed the plan is %s", got)
	}
	for text, wanted := range map[string][]Wanted{
		"no such queue": {{"t", Binding{Queue: "gone"}}}, "there twice": {same, same}, "at least one byte": {{"", Binding{Queue: "a"}}},
		"a header name": {{"t", Binding{"a", []Condition{{"", "x"}}}}}, "the pattern": {{"t", Binding{"a", []Condition{{"x", "["}}}}},
	} {
		if got := plan(false, wanted...); !strings.Contains(got, text) {
			t.Errorf("%v: %s, want %q", wanted, got, text)
		}
	}
	for n := range Most {
		table.Bind("full", Binding{Queue: fmt.Sprint(n)})
	}
	if got := plan(false, Wanted{"full", Binding{Queue: "a"}}); !strings.Contains(got, "which is the limit") {
		t.Errorf("a topic has one binding more than it may have: %s", got)
	}
	if got := plan(true, Wanted{"full", Binding{Queue: "a"}}); strings.Contains(got, "which is the limit") {
		t.Errorf("those that are removed do not count: %s", got)
	}
	if table.CheckBinding("full", &Binding{Queue: "a"}, &l) == nil || table.CheckBinding("full", &Binding{Queue: "7"}, &l) != nil {
		t.Error("a full topic takes no other queue, and other conditions of those that it has")
	}
}
