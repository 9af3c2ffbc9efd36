package scripts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/faisca/fila/storage"
)

// kept is what a history should have: sources, the newest last.
type kept map[Hook][]string

// put loads a source, as an engine does it, into the table and the store.
func put(t *testing.T, table *Table, store *storage.Memory, h Hook, source string, most int) {
	t.Helper()
	rec := storage.Script{Source: source, Version: "v" + source, LoadedAt: 7, User: "u"}
	value := rec.Append(nil)
	v, forgotten := table.Keep(h, &rec, len(value), most)
	var b storage.Batch
	b.Put(storage.State, v.Key(), value)
	for _, old := range forgotten {
		b.Delete(storage.State, old.Key())
	}
	if err := store.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, table *Table) {
	t.Helper()
	table.Check(func(string) bool { return true }, func(no int, format string, args ...any) {
		t.Fatalf("invariant %d: %s", no, fmt.Sprintf(format, args...))
	})
}

func sourcesOf(t *testing.T, table *Table, store *storage.Memory, h Hook) []string {
	t.Helper()
	sources, err := Read(store, table.Of(h))
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// A history has its last sources, each once; the store has those and no others, and a start finds the same.
func TestAHistoryHasTheLastSources(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		table, store, want := &Table{}, storage.NewMemory(), kept{}
		for range 100 {
			h := Hook{fmt.Sprint("q", rng.IntN(2)), []string{"on_enqueue", "on_failure"}[rng.IntN(2)]}
			if rng.IntN(20) == 0 {
				var b storage.Batch
				for _, v := range table.Forget(h) {
					b.Delete(storage.State, v.Key())
				}
				if err := store.Commit(&b, false); err != nil {
					t.Fatal(err)
				}
				delete(want, h)
				continue
			}
			source := fmt.Sprint(rng.IntN(15))
			put(t, table, store, h, source, 1<<20)
			list := append(slices.DeleteFunc(want[h], func(s string) bool { return s == source }), source)
			want[h] = list[max(len(list)-Most, 0):]
			check(t, table)
		}
		again := &Table{}
		var all []*Version
		for v := range table.all.All() {
			all = append(all, v)
		}
		for _, v := range all {
			if err := again.Restore(v.of, v.no, &storage.Script{Version: v.Version, User: v.User, LoadedAt: v.At}, v.bytes); err != nil {
				t.Fatal(err)
			}
		}
		check(t, again)
		if again.Bytes() != table.Bytes() {
			t.Errorf("seed %d: %d bytes after a start, %d before", seed, again.Bytes(), table.Bytes())
		}
		for h, sources := range want {
			if got := sourcesOf(t, again, store, h); !slices.Equal(got, sources) {
				t.Errorf("seed %d: %v has %v, want %v", seed, h, got, sources)
			}
			newest := sources[len(sources)-1]
			if got, err := Source(store, h, "v"+newest); err != nil || got != newest || table.Get(h, "v"+newest) == nil {
				t.Errorf("seed %d: %v, source %s is %q, %v", seed, h, newest, got, err)
			}
		}
	}
}

func TestAllHistoriesHaveABound(t *testing.T) {
	table, store := &Table{}, storage.NewMemory()
	a, b := Hook{"a", "on_enqueue"}, Hook{"b", "on_enqueue"}
	put(t, table, store, a, "1", 1<<20)
	put(t, table, store, a, "2", 1<<20)
	most := table.Bytes()
	put(t, table, store, b, "3", most)
	if got := sourcesOf(t, table, store, a); !slices.Equal(got, []string{"2"}) {
		t.Errorf("the oldest source is not forgotten: %v", got)
	}
	put(t, table, store, b, "4", 0)
	if got := sourcesOf(t, table, store, b); len(table.Of(a)) != 0 || !slices.Equal(got, []string{"4"}) {
		t.Errorf("a has %d sources, b %v", len(table.Of(a)), got)
	}
	check(t, table)
}

func TestASourceThatIsGoneIsEmpty(t *testing.T) {
	table, store, h := &Table{}, storage.NewMemory(), Hook{"q", "on_failure"}
	table.Keep(h, &storage.Script{Source: "x", Version: "v"}, 1, 1)
	if got := sourcesOf(t, table, store, h); !slices.Equal(got, []string{""}) {
		t.Errorf("%q", got)
	}
	if source, err := Source(store, h, "v"); source != "" || err != nil {
		t.Errorf("%q, %v", source, err)
	}
}

func TestNumbersOfVersionsIncrease(t *testing.T) {
	table, h := &Table{}, Hook{"q", "on_failure"}
	if err := table.Restore(h, 3, &storage.Script{Version: "a"}, 1); err != nil {
		t.Fatal(err)
	}
	if err := table.Restore(h, 3, &storage.Script{Version: "b"}, 1); err == nil {
		t.Error("two versions have one number")
	}
}
