package signals_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/decay"
	"github.com/faisca/fila/engine/signals"
	"github.com/faisca/fila/storage"
)

const start = int64(1_800_000_000_000_000_000)

func table(tb testing.TB, most int) *signals.Table {
	tb.Helper()
	w, err := decay.NewWindows([]time.Duration{time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	return signals.NewTable(w, most)
}

// value returns the sum of a pair in window i.
func value(t *signals.Table, p *signals.Pair, i int, now int64) float64 {
	info := t.Info(p, now)
	for _, v := range info.Sums() {
		if i == 0 {
			return v
		}
		i--
	}
	return math.NaN()
}

// all returns what each pair has been given, in the order of their age.
func all(t *signals.Table) string {
	var b strings.Builder
	t.Page(0, math.MaxInt, func(p *signals.Pair) {
		fmt.Fprintf(&b, "%s/%s=%v ", p.Subject(), p.Name(), value(t, p, 4, 0))
	})
	return strings.TrimSpace(b.String())
}

func TestAPairHasTheSumOfItsAdditions(t *testing.T) {
	tab := table(t, 10)
	tab.Add("acme", "failed", start, 1)
	tab.Add("acme", "acked", start, 2)
	tab.Add("acme", "failed", start, 3)
	tab.AddAt("a", "cme", start-int64(time.Hour), 5)
	if got := all(tab); got != "acme/failed=4 acme/acked=2 a/cme=5" {
		t.Error(got)
	}
	if p := tab.Get("acme", "failed"); p == nil || math.Abs(value(tab, p, 0, start+int64(time.Minute))-4/math.E) > 1e-9 {
		t.Errorf("%+v", p)
	}
	if p := tab.Get("acm", "efailed"); p != nil {
		t.Errorf("found %s of %s", p.Name(), p.Subject())
	}
	if p := tab.Get("a", "cme"); math.Abs(value(tab, p, 2, start)-5/math.E) > 1e-9 || p.Time() != start-int64(time.Hour) {
		t.Errorf("%v at %d", value(tab, p, 2, start), p.Time())
	}
}

func TestAnAdditionAfterTheClockWasSetBackCountsInFull(t *testing.T) {
	tab := table(t, 10)
	tab.Add("acme", "failed", start, 1)
	p := tab.Add("acme", "failed", start-int64(time.Hour), 1)
	if got := value(tab, p, 0, start-int64(time.Hour)); math.Abs(got-2) > 1e-9 {
		t.Errorf("%v instead of 2", got)
	}
}

func TestVelocityIsTheDifferenceOfTheFirstTwoRates(t *testing.T) {
	tab := table(t, 10)
	info := tab.Info(tab.Add("acme", "failed", start, 300), start)
	if v, ok := info.Velocity(); !ok || math.Abs(v-4) > 1e-9 { // 300/60 - 300/300
		t.Errorf("%v, %v", v, ok)
	}
	w, err := decay.NewWindows([]time.Duration{time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	one := signals.NewTable(w, 10)
	info = one.Info(one.Add("acme", "failed", start, 300), start)
	if _, ok := info.Velocity(); ok {
		t.Error("a single window has a velocity")
	}
}

func TestThePairTouchedLongestAgoGoesFirst(t *testing.T) {
	tab := table(t, 3)
	for name := range strings.FieldsSeq("a b c a d e b f") {
		tab.Add("s", name, start, 1)
		for p := tab.Surplus(); p != nil; p = tab.Surplus() {
			if p.Stored() {
				t.Errorf("%s was stored", p.Name())
			}
		}
		if tab.Len() > 3 {
			t.Fatalf("%d pairs", tab.Len())
		}
	}
	if got := all(tab); got != "s/e=1 s/b=1 s/f=1" {
		t.Error(got)
	}
}

func TestNamesOfASubjectAreListedInOrder(t *testing.T) {
	tab := table(t, 100)
	for _, s := range []string{"ab", "abc", "b", "a"} {
		for _, n := range []string{"used", "acked", "x"} {
			tab.Add(s, n, start, 1)
		}
	}
	names := func(subject, after string) (list []string) {
		for p := range tab.Of(subject, after) {
			list = append(list, p.Subject()+"/"+p.Name())
		}
		return list
	}
	if got := fmt.Sprint(names("ab", "")); got != "[ab/acked ab/used ab/x]" {
		t.Error(got)
	}
	if got := fmt.Sprint(names("ab", "acked")); got != "[ab/used ab/x]" {
		t.Error(got)
	}
	if got := names("c", ""); got != nil {
		t.Error(got)
	}
	if v := tab.View(); v.Count("ab", 100) != 3 || v.Count("ab", 2) != 2 || v.Count("c", 100) != 0 {
		t.Error("the view counts otherwise")
	}
}

func TestPagesShowEachPairOnceWhileOthersComeAndGo(t *testing.T) {
	tab := table(t, 1000)
	for i := range 100 {
		tab.Add("stays", fmt.Sprint(i), start, 1)
		tab.Add("goes", fmt.Sprint(i), start, 1)
	}
	seen := map[string]int{}
	cursor, pages := uint64(0), 0
	for {
		cursor = tab.Page(cursor, 7, func(p *signals.Pair) { seen[p.Subject()+p.Name()]++ })
		if pages++; cursor == 0 {
			break
		}
		if p := tab.Get("goes", fmt.Sprint(pages)); p != nil {
			tab.Remove(p)
		}
		tab.Add("comes", fmt.Sprint(pages), start, 1)
	}
	for i := range 100 {
		if n := seen[fmt.Sprint("stays", i)]; n != 1 {
			t.Errorf("pair %d was shown %d times", i, n)
		}
	}
	if pages < 200/7 {
		t.Errorf("%d pages", pages)
	}
}

func TestAViewIsReadWhileTheTableChanges(t *testing.T) {
	tab := table(t, 1000)
	tab.Add("acme", "failed", start, 1)
	v := tab.View()
	if tab.View() != v {
		t.Error("a view was made without a need")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			if n, err := v.Value("acme", "failed", "all", start); n < 1 || err != nil {
				t.Errorf("%v, %v", n, err)
			}
			if n, err := v.Value("other", "7", "all", start); n != 0 || err != nil {
				t.Errorf("a pair that came later has %v, %v", n, err)
			}
		}
	}()
	for i := range 1000 {
		tab.Add("acme", "failed", start+int64(i)*int64(time.Hour), 1)
		tab.Add("other", fmt.Sprint(i), start, 1)
	}
	<-done
	if n, _ := v.Value("acme", "failed", "all", start); n != 1001 {
		t.Errorf("the view has %v", n)
	}
	if n, _ := tab.View().Value("other", "7", "all", start); n != 1 {
		t.Errorf("the next view has %v", n)
	}
	if first, err := v.Value("acme", "failed", "", start); err != nil || first < 0.99 || first > 2 {
		t.Errorf("the first window has %v, %v", first, err)
	}
	if _, err := v.Value("acme", "failed", "2m", start); err == nil || err.Error() != `no window "2m", there are 1m 5m 1h 24h all` {
		t.Error(err)
	}
	var zero signals.View
	if n, err := zero.Value("acme", "failed", "", start); n != 0 || err != nil || zero.Count("acme", 1) != 0 {
		t.Error("an empty view has pairs")
	}
}

// Against a model: which pairs are to be written, what a store would have, and which pair is touched last.
func TestATableKnowsWhatIsToBeWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	tab := table(t, 20)
	store := map[string]storage.Signal{}
	var unwritten []string // in the order of their first changes
	var order []string
	without := func(list []string, key string) []string {
		return slices.DeleteFunc(list, func(k string) bool { return k == key })
	}
	forget := func(p *signals.Pair) {
		if _, ok := store[p.Key()]; ok && !p.Stored() {
			t.Fatalf("%s is in the store", p.Name())
		}
		delete(store, p.Key())
		unwritten, order = without(unwritten, p.Key()), without(order, p.Key())
	}
	for step := range 20_000 {
		name := fmt.Sprint(rng.IntN(30))
		switch n := rng.IntN(10); {
		case n < 6:
			p := tab.Add("s", name, start+int64(step), 1)
			if !slices.Contains(unwritten, p.Key()) {
				unwritten = append(unwritten, p.Key())
			}
			order = append(without(order, p.Key()), p.Key())
			if p := tab.Surplus(); p != nil {
				if p.Key() != order[0] {
					t.Fatalf("step %d: %q went, the oldest is %q", step, p.Key(), order[0])
				}
				forget(p)
			}
		case n == 6:
			if p := tab.Get("s", name); p != nil {
				tab.Remove(p)
				forget(p)
			}
		case n == 7: // by a command
			if p := tab.Get("s", name); p != nil {
				store[p.Key()] = tab.Record(p)
				unwritten = without(unwritten, p.Key())
			}
		default:
			p := tab.NextUnwritten()
			if (p == nil) != (len(unwritten) == 0) {
				t.Fatalf("step %d: next is %v of %d", step, p, len(unwritten))
			}
			if p != nil {
				if p.Key() != unwritten[0] {
					t.Fatalf("step %d: next is %q, not %q", step, p.Key(), unwritten[0])
				}
				store[p.Key()] = tab.Record(p)
				unwritten = unwritten[1:]
			}
		}
		if tab.Unwritten() != len(unwritten) || tab.Len() != len(order) {
			t.Fatalf("step %d: %d of %d to be written, the model says %d of %d", step, tab.Unwritten(), tab.Len(), len(unwritten), len(order))
		}
	}
	for p := tab.NextUnwritten(); p != nil; p = tab.NextUnwritten() {
		store[p.Key()] = tab.Record(p)
	}
	again := table(t, 20)
	var pairs []*signals.Pair
	for key, rec := range store {
		pairs = append(pairs, again.NewPair(key, &rec))
	}
	again.Restore(pairs)
	tab.Page(0, math.MaxInt, func(p *signals.Pair) {
		q := again.Get(p.Subject(), p.Name())
		for i := range 5 {
			if a, b := value(tab, p, i, start), value(again, q, i, start); a != b {
				t.Errorf("%s: %v, after a restart %v", p.Name(), a, b)
			}
		}
	})
	again.Add("s", "new", start+1e12, 1)
	for again.Len() < 21 {
		again.Add("s", fmt.Sprint("new-", again.Len()), start+1e12, 1)
	}
	if p := again.Surplus(); p.Key() != order[0] || !p.Stored() || again.Unwritten() != 21-len(order) {
		t.Errorf("%q goes first after a restart, before it was %q", p.Key(), order[0])
	}
}

// A pair that is touched before each write is the one touched last, and its turn comes nevertheless.
func TestAPairThatIsAddedToAllTheTimeIsWrittenInItsTurn(t *testing.T) {
	tab := table(t, 100)
	tab.Add("s", "busy", start, 1)
	for i := range 10 {
		tab.Add("s", fmt.Sprint(i), start, 1)
	}
	tab.Add("s", "busy", start, 1)
	for i := range 100 { // each write is followed by another pair to write
		p := tab.NextUnwritten()
		tab.Record(p)
		if p.Name() == "busy" {
			if i > 0 {
				t.Errorf("%d others, which changed later, were written before", i)
			}
			return
		}
		tab.Add("s", fmt.Sprint("new-", i), start, 1)
		tab.Add("s", "busy", start, 1)
	}
	t.Error("it is never written")
}

// The bound of the documents: 256 bytes a pair, besides subject and name.
func TestAPairTakesAtMost256Bytes(t *testing.T) {
	for _, n := range []int{50_000, 100_000} {
		tab := table(t, n)
		names := 0
		before := heap()
		for i := range n {
			subject := fmt.Sprintf("tenant-%06d", i)
			tab.Add(subject, "enqueued", start, 1)
			names += len(subject) + len("enqueued")
			if i%100 == 0 {
				tab.View() // so that nodes are copied
			}
		}
		if each := (int(heap()-before) - names) / n; each > 256 {
			t.Errorf("%d bytes for each of %d pairs", each, n)
		} else {
			t.Logf("%d bytes for each of %d pairs", each, n)
		}
		runtime.KeepAlive(tab)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab := table(b, n)
			subjects := make([]string, n)
			for i := range subjects {
				subjects[i] = fmt.Sprintf("tenant-%06d", i)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				tab.Add(subjects[rng.IntN(n)], "enqueued", start, 1)
			}
		})
	}
}
