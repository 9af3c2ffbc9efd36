package search

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/causes"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// at is the time of a message in milliseconds, as an id.
func at(ms int64) storage.ID {
	return storage.MakeID(ms*int64(time.Millisecond), storage.KeyHash("k"), 5, 0)
}

func header(pairs ...string) (list []storage.Header) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, storage.Header{Name: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	return list
}

func TestAFilterSelectsWhatMeetsAllOfIt(t *testing.T) {
	fresh := &Record{ID: at(10), Message: storage.Message{Payload: []byte("a payload"), Headers: header("kind", "a", "kind", "order.new")}}
	failed := &Record{ID: at(20), Attempt: storage.Attempt{FirstFailedAt: 1, Error: "failed 17", Cause: "mail"}}
	dead := &Record{ID: at(30), Message: storage.Message{Dead: &storage.Dead{Queue: "q", Error: "lost", DiedAt: 40 * int64(time.Millisecond)}}}
	for _, test := range []struct {
		name   string
		filter *Filter
		want   []*Record
	}{
		{"none", nil, []*Record{fresh, failed, dead}},
		{"an empty one", &Filter{}, []*Record{fresh, failed, dead}},
		{"a header", &Filter{Header: "kind", Value: "order.*"}, []*Record{fresh}},
		{"a header that is missing", &Filter{Header: "Kind", Value: "*"}, nil},
		{"a payload", &Filter{Payload: []byte("pay")}, []*Record{fresh}},
		{"a time of enqueue or death", &Filter{Since: 10, Until: 20}, []*Record{fresh, failed}},
		{"a time since", &Filter{Since: 40}, []*Record{dead}},
		{"the group of an error", &Filter{Error: new("failed #")}, []*Record{failed}},
		{"the pattern of an error", &Filter{Error: new("*l*")}, []*Record{failed, dead}},
		{"a cause that was named", &Filter{Causes: []string{"mail", "x"}}, []*Record{failed}},
		{"a cause that is the error", &Filter{Causes: []string{"lost"}}, []*Record{dead}},
		{"the queue of the death", &Filter{Origin: "q"}, []*Record{dead}},
		{"two of these", &Filter{Origin: "q", Error: new("failed*")}, nil},
	} {
		var got []*Record
		for _, r := range []*Record{fresh, failed, dead} {
			if ok, work := test.filter.Match(r); ok {
				got = append(got, r)
			} else if work < recordWork {
				t.Errorf("%s: work of %d", test.name, work)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %d messages, want %d", test.name, len(got), len(test.want))
		}
	}
}

func TestAPatternCostsWhatItCompares(t *testing.T) {
	r := &Record{Attempt: storage.Attempt{FirstFailedAt: 1, Error: strings.Repeat("a", 1000)}}
	_, plain := (&Filter{Error: new("a")}).Match(r)
	_, costly := (&Filter{Error: new(strings.Repeat("a*", 100))}).Match(r)
	if plain > 4000 || costly < 100_000 {
		t.Errorf("work %d and %d", plain, costly)
	}
}

func TestAFilterIsChecked(t *testing.T) {
	long := strings.Repeat("x", 11)
	for _, test := range []struct {
		filter *Filter
		tooBig bool
		done   bool // it is one of messages that are done
		want   string
	}{
		{nil, false, true, ""},
		{&Filter{Header: "h", Value: long[:10], Since: 2, Until: 2}, false, true, ""},
		{&Filter{Header: "h", Value: "[a"}, false, true, "pattern of HEADER"},
		{&Filter{Header: "h", Value: long}, true, true, "pattern of HEADER"},
		{&Filter{Error: &long}, true, false, "pattern of ERROR"},
		{&Filter{Payload: []byte(long)}, true, false, "PAYLOAD"},
		{&Filter{Origin: long}, true, false, "FROM"},
		{&Filter{Causes: []string{long}}, true, false, "CAUSE"},
		{&Filter{Since: 2, Until: 1}, false, true, "SINCE 2 is after UNTIL 1"},
		{&Filter{Error: new("a")}, false, true, "DONE goes with"},
	} {
		check := test.filter.Check
		if test.done {
			check = test.filter.CheckDone
		}
		if tooBig, err := check(10); tooBig != test.tooBig || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, %v; want %q", test.filter, tooBig, err, test.want)
		}
	}
}

// The pattern of a group selects the errors of that group and no others, whatever they are.
func TestThePatternOfAGroupMatchesThatGroupAlone(t *testing.T) {
	texts := []string{
		"", "failed 17", "failed 4", "failed #", "failed", "failed to connect", "failed *", "failed ?", `open "a"`, `open "b"`, `open ""`, "open ''", "a [1]", "a [b]", `a \[#]`, `a \`,
		"it's 5", "it's #", "deadbeef", "deadbee5", "#", "*", "?",
	}
	for _, a := range texts {
		g := causes.Groups{}
		g.Add(&causes.Failure{Text: a})
		pattern := g.List()[0].Error
		if _, err := (&Filter{Error: &pattern}).Check(100); err != nil {
			t.Errorf("%q: %v", a, err)
		}
		for _, b := range texts {
			same := g.List()[0].Cause == errtext.Group(b)
			if got := matchError(pattern, b); got != same {
				t.Errorf("the pattern %q of %q matches %q: %v", pattern, a, b, got)
			}
		}
	}
}

func TestFailuresAreCollectedByCause(t *testing.T) {
	groups := causes.Groups{Queue: "q.dlq"}
	for _, r := range []Record{
		{ID: at(1)}, // has not failed
		{ID: at(2), Attempt: storage.Attempt{FirstFailedAt: 1, LastFailedAt: 2, Error: "failed 1"}},
		{ID: at(3), Message: storage.Message{Dead: &storage.Dead{Queue: "q", Error: "failed 2", DiedAt: 3}}},
	} {
		if !r.Collect(&groups) {
			t.Fatal("the page is full")
		}
	}
	list := groups.List()
	if len(list) != 1 || list[0].Count != 2 || list[0].Queues["q"] != 1 || list[0].Queues["q.dlq"] != 1 || list[0].Last.UnixNano() != 3 {
		t.Errorf("%+v", list)
	}
}

func TestCursorsAreReadAsTheyAreWritten(t *testing.T) {
	key := storage.AppendMessageKey(nil, 7, "k", 5, at(1))
	for _, k := range [][]byte{nil, key} {
		if got, ok := ParseCursor(7, Cursor(k)); !ok || !slices.Equal(got, k) {
			t.Errorf("%x became %x, %v", k, got, ok)
		}
	}
	place := Place{17, at(1)}
	for _, p := range []Place{{}, place} {
		if got, ok := ParsePlace(p.Cursor()); !ok || got != p {
			t.Errorf("%v became %v, %v", p, got, ok)
		}
	}
	for _, bad := range []string{"0", "x", "!", "AAAA", Cursor(key)[1:], place.Cursor() + "AAAA", Place{-1, at(1)}.Cursor()} {
		if _, ok := ParseCursor(7, bad); ok && bad != "" {
			t.Errorf("%q is the cursor of a message", bad)
		}
		if _, ok := ParsePlace(bad); ok && bad != "" {
			t.Errorf("%q is a place", bad)
		}
	}
}

const second = int64(time.Second)

// ends is a store with an end every second in generations of ten, of three fairness keys in turn.
func ends(t *testing.T, n int) (store *storage.Memory, generations []int64, ids []storage.ID) {
	t.Helper()
	store = storage.NewMemory()
	var b storage.Batch
	for i := range n {
		now := int64(i+1) * second
		if i%10 == 0 {
			generations = append(generations, now)
		}
		key := fmt.Sprint("k", i%3)
		id := storage.MakeID(now, storage.KeyHash(key), 5, 0)
		rec := storage.Result{At: now, Key: key, Attempts: 1, NoValue: true, Headers: header("n", fmt.Sprint(i))}
		if i%5 == 4 {
			rec = storage.Result{At: now, Value: []byte("v")} // a value, and nothing is known of the message
		}
		b.Put(storage.Results, storage.AppendResultKey(nil, 7, generations[len(generations)-1], id), rec.Append(nil))
		ids = append(ids, id)
	}
	if err := store.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	return store, generations, ids
}

// keep is the settings of a queue that knows of ends for a time.
func keep(period time.Duration) (set queueset.Values) {
	set[queueset.KeepDone] = uint64(period.Milliseconds()) //nolint:gosec // positive
	return set
}

func TestAnEndIsFoundAsLongAsItIsKnown(t *testing.T) {
	store, generations, ids := ends(t, 40)
	e, err := FindEnd(store, 7, generations, ids[13])
	if err != nil || e == nil || e.Rec.Key != "k1" || e.ID != ids[13] {
		t.Fatalf("%+v, %v", e, err)
	}
	set := keep(10 * time.Second)
	if !e.Known(&set, 24*second-1) || e.Known(&set, 24*second) {
		t.Error("it is not known for ten seconds")
	}
	for _, of := range []struct {
		queue uint32
		id    storage.ID
	}{{8, ids[13]}, {7, at(1)}, {7, ids[4]}} {
		if e, err := FindEnd(store, of.queue, generations, of.id); e != nil || err != nil {
			t.Errorf("%+v, %v", e, err)
		}
	}
	set[queueset.ResultTTL] = 20_000
	if with, without := KnownFor(&set, true), KnownFor(&set, false); with != 20*time.Second || without != 10*time.Second {
		t.Errorf("known for %s with a value, for %s without", with, without)
	}
}

// A walk sees each end that is known and selected once, the newest generation first, in pages of any size.
func TestAWalkSeesEachEndOnce(t *testing.T) {
	const n = 95
	store, generations, ids := ends(t, n)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for range 300 {
		page := Done{Queue: 7, Ends: generations, Set: keep(time.Duration(rng.IntN(n+10)) * time.Second), Now: n * second, Limit: 1 + rng.IntN(20)}
		if rng.IntN(2) == 0 {
			page.Key = fmt.Sprint("k", rng.IntN(3))
		}
		if rng.IntN(2) == 0 {
			page.Filter = &Filter{Since: rng.Int64N(n * 1000), Until: rng.Int64N(2) * rng.Int64N(n*1000)}
		} else if rng.IntN(2) == 0 {
			page.Filter = &Filter{Header: "n", Value: "*1*"}
		}
		var want []storage.ID
		for g := (n - 1) / 10; g >= 0; g-- {
			for i := min(g*10+9, n-1); i >= g*10; i-- {
				now, f := int64(i+1)*second, page.Filter
				switch {
				case i%5 == 4, page.Key != "" && page.Key != fmt.Sprint("k", i%3), now+int64(KnownFor(&page.Set, false)) <= page.Now:
				case f != nil && f.Header != "" && !strings.Contains(fmt.Sprint(i), "1"):
				case f != nil && (now/int64(time.Millisecond) < f.Since || f.Until > 0 && now/int64(time.Millisecond) > f.Until):
				default:
					want = append(want, ids[i])
				}
			}
		}
		var got []storage.ID
		for pages := 0; ; pages++ {
			one := page
			if err := one.Read(store); err != nil || pages > n+1 {
				t.Fatalf("page %d: %v", pages, err)
			}
			for _, e := range one.Found {
				got = append(got, e.ID)
			}
			at, ok := ParsePlace(one.At.Cursor())
			if page.At = at; !ok || at == (Place{}) {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("key %q, filter %+v, limit %d: %d ends, want %d", page.Key, page.Filter, page.Limit, len(got), len(want))
		}
	}
}

// A filter with ids selects these messages, and has a bound.
func TestAFilterSelectsMessagesByTheirIDs(t *testing.T) {
	a, b := storage.ID{1}, storage.ID{2}
	c := storage.ID{3}
	f := &Filter{IDs: []storage.ID{a, c}}
	for id, want := range map[storage.ID]bool{a: true, b: false, c: true} {
		if got, _ := f.Match(&Record{ID: id}); got != want {
			t.Errorf("%v is selected: %v, want %v", id, got, want)
		}
	}
	for n, want := range map[int]bool{IDsMax: false, IDsMax + 1: true} {
		if tooBig, err := (&Filter{IDs: make([]storage.ID, n)}).Check(100); tooBig != want || (err != nil) != want {
			t.Errorf("%d ids: too big is %v, %v", n, tooBig, err)
		}
	}
}
