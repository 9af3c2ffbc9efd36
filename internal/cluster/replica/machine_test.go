package replica

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
)

const aCluster = "a-cluster"

// claimed returns the store of a node and its machine.
func claimed(tb testing.TB) (*storage.Memory, *Machine) {
	tb.Helper()
	store := storage.NewMemory()
	if err := Claim(store, aCluster, nil); err != nil {
		tb.Fatal(err)
	}
	return store, open(tb, store)
}

func open(tb testing.TB, store *storage.Memory) *Machine {
	tb.Helper()
	m, err := NewMachine(store, aCluster)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// putting returns the entries of a batch that puts keys.
func putting(tb testing.TB, term, number uint64, partBytes int, keys ...string) [][]byte {
	tb.Helper()
	var b storage.Batch
	for _, k := range keys {
		b.Put(storage.Messages, []byte(k), []byte("value"))
	}
	entries, err := divide(Entry{Term: term, Number: number}, b.Bytes(), partBytes)
	if err != nil {
		tb.Fatal(err)
	}
	return slices.Collect(entries)
}

// one returns a batch that is one entry.
func one(tb testing.TB, term, number uint64, key string) []byte {
	tb.Helper()
	return putting(tb, term, number, PartBytes, key)[0]
}

func has(store *storage.Memory, key string) bool {
	_, err := store.Get(storage.Messages, []byte(key))
	return err == nil
}

// holds describes which of the keys a store has.
func holds(store *storage.Memory, keys ...string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !has(store, k) }), " ")
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wantDeposed(tb testing.TB, err error) {
	tb.Helper()
	if !errors.Is(err, storage.ErrDeposed) {
		tb.Errorf("it is answered with %v", err)
	}
}

func TestEachBatchIsAppliedWithItsPosition(t *testing.T) {
	store, m := claimed(t)
	must(t, m.Apply(7, 2, one(t, 2, 1, "a")))
	must(t, m.Apply(9, 2, one(t, 2, 2, "b")))
	if got := holds(store, "a", "b"); got != "a b" || m.Applied() != 9 || m.LastOf(2) != 2 || m.LastOf(1) != 0 || m.LastOf(3) != 0 {
		t.Errorf("the store has %q, applied are %d, the last batch is %d", got, m.Applied(), m.LastOf(2))
	}
	if again := open(t, store); again.Applied() != 9 || again.LastOf(2) != 2 {
		t.Errorf("after a restart, applied are %d, the last batch is %d", again.Applied(), again.LastOf(2))
	}
	want := storage.Replica{Cluster: aCluster, Index: 9, Term: 2, Number: 2}
	if r, err := ReadRecord(store); err != nil || *r != want {
		t.Errorf("the record is %+v, %v", r, err)
	}
}

func TestAnEntryThatTheStoreHasIsSkipped(t *testing.T) {
	store, m := claimed(t)
	must(t, m.Apply(1, 1, one(t, 1, 1, "a")))
	must(t, m.Apply(2, 1, one(t, 1, 2, "b")))
	var b storage.Batch
	b.SingleDelete(storage.Messages, []byte("a"))
	entries, err := divide(Entry{Term: 1, Number: 3}, b.Bytes(), PartBytes)
	must(t, err)
	gone := slices.Collect(entries)
	must(t, m.Apply(3, 1, gone[0]))
	again := open(t, store)
	for i, entry := range [][]byte{one(t, 1, 1, "a"), one(t, 1, 2, "b"), gone[0]} {
		must(t, again.Apply(uint64(i+1), 1, entry))
	}
	if got := holds(store, "a", "b"); got != "b" {
		t.Errorf("the store has %q after the log was read twice", got)
	}
}

func TestABatchOfAnotherTermThanTheLogsIsDropped(t *testing.T) {
	store, m := claimed(t)
	must(t, m.Apply(1, 2, one(t, 2, 1, "a")))
	wantDeposed(t, m.Apply(2, 3, one(t, 2, 2, "late")))
	must(t, m.Apply(3, 3, one(t, 3, 1, "b")))
	if got := holds(store, "a", "late", "b"); got != "a b" {
		t.Errorf("the store has %q", got)
	}
}

func TestABatchBehindAGapIsDropped(t *testing.T) {
	for _, x := range []struct {
		term, number uint64
		ok           bool
	}{{2, 3, true}, {2, 4, false}, {2, 2, false}, {2, 1, false}, {3, 1, true}, {3, 2, false}, {3, 3, false}} {
		store, m := claimed(t)
		must(t, m.Apply(1, 2, one(t, 2, 1, "a")))
		must(t, m.Apply(2, 2, one(t, 2, 2, "b")))
		err := m.Apply(3, x.term, one(t, x.term, x.number, "c"))
		if x.ok {
			must(t, err)
		} else {
			wantDeposed(t, err)
		}
		if has(store, "c") != x.ok {
			t.Errorf("batch %d of term %d is applied: %v", x.number, x.term, !x.ok)
		}
	}
}

func TestALogWhoseTermsDecreaseIsDamaged(t *testing.T) {
	_, m := claimed(t)
	must(t, m.Apply(1, 2, one(t, 2, 1, "a")))
	if err := m.Apply(2, 1, one(t, 1, 1, "b")); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("it is answered with %v", err)
	}
}

func TestPartsAreAppliedInOneWrite(t *testing.T) {
	store, m := claimed(t)
	parts := putting(t, 2, 1, 20, "a", "b", "c")
	if len(parts) < 3 {
		t.Fatalf("%d parts", len(parts))
	}
	for i, p := range parts {
		if got := holds(store, "a", "b", "c"); got != "" || m.Applied() != 0 {
			t.Fatalf("before part %d the store has %q", i, got)
		}
		must(t, m.Apply(uint64(i+1), 2, p))
		if _, err := m.Snapshot(); errors.Is(err, ErrParts) != (i < len(parts)-1) {
			t.Errorf("a snapshot behind part %d: %v", i, err)
		}
	}
	if got := holds(store, "a", "b", "c"); got != "a b c" || m.Applied() != uint64(len(parts)) {
		t.Errorf("the store has %q, applied are %d", got, m.Applied())
	}
}

func TestWhatIsKeptOfABatchIsDiscarded(t *testing.T) {
	parts := func(term, number uint64) [][]byte { return putting(t, term, number, 20, "a", "b", "c") }
	n := len(parts(2, 1))
	for name, then := range map[string]func(m *Machine){
		"by a later term":     func(m *Machine) { must(t, m.Apply(3, 3, one(t, 3, 1, "other"))) },
		"by another batch":    func(m *Machine) { wantDeposed(t, m.Apply(3, 2, one(t, 2, 2, "x"))) },
		"by a part behind it": func(m *Machine) { wantDeposed(t, m.Apply(3, 2, parts(2, 1)[2])) },
		"by a part twice": func(m *Machine) {
			must(t, m.Apply(2, 2, parts(2, 1)[1]))
			wantDeposed(t, m.Apply(3, 2, parts(2, 1)[1]))
		},
		"by the same from new": func(m *Machine) { must(t, m.Apply(3, 2, one(t, 2, 1, "other"))) },
	} {
		t.Run(name, func(t *testing.T) {
			store, m := claimed(t)
			must(t, m.Apply(1, 2, parts(2, 1)[0]))
			then(m)
			if _, err := m.Snapshot(); err != nil {
				t.Errorf("a snapshot: %v", err)
			}
			wantDeposed(t, m.Apply(4, 2+m.LastOf(3), parts(2+m.LastOf(3), 1+m.LastOf(2)+m.LastOf(3))[n-1]))
			if got := holds(store, "a", "b", "c"); got != "" {
				t.Errorf("the store has %q", got)
			}
		})
	}
}

func TestAWriteThatFailsIsTriedAgain(t *testing.T) {
	for name, x := range map[string]struct{ late, parted bool }{"absent": {}, "present after all": {late: true}, "absent, of a batch in parts": {parted: true}, "present, of a batch in parts": {true, true}} {
		t.Run(name, func(t *testing.T) {
			store, m := claimed(t)
			must(t, m.Apply(1, 1, one(t, 1, 1, "a")))
			full := errors.New("no space left")
			store.FailCommits(full)
			if x.late {
				store.FailCommitsLate(full)
			}
			size := PartBytes
			if x.parted {
				size = 20
			}
			parts := putting(t, 1, 2, size, "b", "c")
			last := uint64(len(parts) + 1)
			for i, p := range parts[:len(parts)-1] {
				must(t, m.Apply(uint64(i+2), 1, p))
			}
			if err := m.Apply(last, 1, parts[len(parts)-1]); !errors.Is(err, full) || !m.Failed() || m.Applied() != 1 {
				t.Fatalf("%v, failed: %v, applied: %d", err, m.Failed(), m.Applied())
			}
			if err := m.Apply(last+1, 1, one(t, 1, 3, "d")); err == nil || errors.Is(err, storage.ErrDeposed) || has(store, "d") {
				t.Errorf("the next entry is answered with %v", err)
			}
			if err := m.Retry(); err == nil || !m.Failed() {
				t.Errorf("a store that is not reopened: %v", err)
			}
			store.FailCommits(nil)
			must(t, store.Reopen())
			must(t, m.Retry())
			must(t, m.Apply(last+1, 1, one(t, 1, 3, "d")))
			if got := holds(store, "a", "b", "c", "d"); got != "a b c d" || m.Applied() != last+1 || m.Failed() {
				t.Errorf("the store has %q, applied are %d", got, m.Applied())
			}
		})
	}
}

func TestAStoreThatHasLostEntriesIsRefused(t *testing.T) {
	store, m := claimed(t)
	must(t, m.Apply(1, 1, one(t, 1, 1, "a")))
	must(t, store.Sync())
	must(t, m.Apply(2, 1, one(t, 1, 2, "b")))
	applied, err := m.Snapshot()
	must(t, err)
	cut := store.CloneSynced() // the power failed before the store was synced
	after := open(t, cut)
	if err := after.Has(applied); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "up to 1") || !strings.Contains(err.Error(), "up to 2") {
		t.Errorf("a store without entry %d: %v", applied, err)
	}
	must(t, after.Has(1))
	must(t, after.Apply(2, 1, one(t, 1, 2, "b")))
	must(t, after.Has(applied))
}

func TestAStoreBelongsToOneCluster(t *testing.T) {
	store := storage.NewMemory()
	if _, err := NewMachine(store, aCluster); err == nil {
		t.Error("a plain store has a machine")
	}
	if r, err := ReadRecord(store); r != nil || err != nil {
		t.Errorf("a plain store has the record %+v, %v", r, err)
	}
	must(t, Claim(store, aCluster, nil))
	must(t, open(t, store).Apply(5, 1, one(t, 1, 1, "a")))
	must(t, Claim(store, aCluster, nil))
	if m := open(t, store); m.Applied() != 5 {
		t.Errorf("claimed again, applied are %d", m.Applied())
	}
	if err := Claim(store, "another", nil); err == nil {
		t.Error("another cluster may claim the store")
	}
	if _, err := NewMachine(store, "another"); err == nil {
		t.Error("another cluster may use the store")
	}
}

func TestDamageAndNewerEntriesAreNeverSkipped(t *testing.T) {
	store, m := claimed(t)
	newer := one(t, 1, 1, "a")
	newer[0]++
	if err := m.Apply(1, 1, newer); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "entry 1 ") || !strings.Contains(err.Error(), "upgrade this node") {
		t.Errorf("a newer entry: %v", err)
	}
	damaged := one(t, 1, 1, "a")
	damaged[len(damaged)-1]++
	if err := m.Apply(1, 1, damaged); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a damaged entry: %v", err)
	}
	bad := Entry{Term: 1, Number: 1, Parts: 1, Bytes: []byte("no batch at all")}
	if err := m.Apply(1, 1, bad.Append(nil)); !errors.Is(err, storage.ErrCorrupt) || m.Failed() {
		t.Errorf("an entry that is no batch: %v", err)
	}
	if has(store, "a") || m.Applied() != 0 {
		t.Error("something is applied")
	}
}

// Nodes that read one log in different pieces, with restarts that lose what was not synced, end
// with the same store. The log has batches in parts, leaderships that end in the middle of a
// batch, and batches that an earlier leadership has left.
func TestStoresWithEqualRecordsAreEqual(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 7))
		log := randomLog(t, rng)
		byIndex := map[uint64]string{}
		for range 3 {
			store, m := claimed(t)
			must(t, store.Sync())
			for i := 0; i < len(log); i++ {
				if err := m.Apply(uint64(i+1), log[i].term, log[i].data); err != nil && !errors.Is(err, storage.ErrDeposed) {
					t.Fatalf("seed %d, entry %d: %v", seed, i+1, err)
				}
				if was, ok := byIndex[m.Applied()]; ok && was != contents(t, store) {
					t.Fatalf("seed %d: two stores at entry %d differ:\n%s\n%s", seed, m.Applied(), was, contents(t, store))
				}
				byIndex[m.Applied()] = contents(t, store)
				switch rng.IntN(40) {
				case 0:
					store, i = store.CloneSynced(), -1 // from the beginning, with what was synced
					m = open(t, store)
				case 1, 2, 3:
					must(t, store.Sync())
				}
			}
		}
	}
}

type logged struct {
	term uint64
	data []byte
}

func randomLog(tb testing.TB, rng *rand.Rand) (log []logged) {
	tb.Helper()
	term, number := uint64(1), uint64(0)
	for len(log) < 60 {
		if rng.IntN(8) == 0 {
			term, number = term+1+rng.Uint64N(2), 0
		}
		keys := []string{fmt.Sprint("k", rng.IntN(5)), fmt.Sprint("k", rng.IntN(5)), fmt.Sprint("n", len(log))}
		of, no := term, number+1
		switch {
		case rng.IntN(8) == 0 && term > 1: // left by an earlier leadership
			of = 1 + rng.Uint64N(term-1)
		case rng.IntN(10) == 0:
			no++
		default:
			number++
		}
		parts := putting(tb, of, no, 15+rng.IntN(60), keys...)
		if of == term && no == number && rng.IntN(6) == 0 { // the leadership ends in the middle
			parts, term, number = parts[:rng.IntN(len(parts))], term+1, 0
			for _, p := range parts {
				log = append(log, logged{of, p})
			}
			continue
		}
		for _, p := range parts {
			log = append(log, logged{term, p})
		}
	}
	return log
}

// contents returns all records of a store.
func contents(tb testing.TB, store *storage.Memory) string {
	tb.Helper()
	var all bytes.Buffer
	for _, f := range storage.Families() {
		it := store.Scan(f, nil, nil)
		for ok := it.Seek(nil); ok; ok = it.Next() {
			fmt.Fprintf(&all, "%s %q %q\n", f, it.Key(), it.Value())
		}
		it.Close()
	}
	return all.String()
}

func BenchmarkApply(b *testing.B) {
	store, m := claimed(b)
	var batch storage.Batch
	for i := range 16 {
		batch.Put(storage.Messages, fmt.Append(nil, "key", i), make([]byte, 4<<10))
	}
	b.SetBytes(int64(batch.Size()))
	b.ReportAllocs()
	for n := uint64(1); b.Loop(); n++ {
		entries, err := divide(Entry{Term: 1, Number: n}, batch.Bytes(), PartBytes)
		must(b, err)
		for e := range entries {
			must(b, m.Apply(n, 1, e))
		}
		must(b, store.Sync())
	}
}

func TestADetachedStoreIsAPlainOne(t *testing.T) {
	store, _ := claimed(t)
	format := func() string {
		value, err := store.Get(storage.Default, []byte("format"))
		must(t, err)
		return string(value)
	}
	if format() != "2" {
		t.Errorf("the store of a node has format %s", format())
	}
	for _, want := range []bool{true, false} {
		was, err := Detach(store)
		must(t, err)
		if r, err := ReadRecord(store); was != want || r != nil || err != nil || format() != "1" {
			t.Errorf("detached: %t, record %+v, %v, format %s", was, r, err, format())
		}
	}
}

// Which nodes vote is said of the nodes of one cluster.
func TestLearnersBelongToOneCluster(t *testing.T) {
	for name, leave := range map[string]func(s *storage.Memory) error{
		"detached":          func(s *storage.Memory) error { _, err := Detach(s); return err },
		"a cluster of one":  func(s *storage.Memory) error { return Begin(s, "another") },
		"claimed by others": func(s *storage.Memory) error { return Claim(s, aCluster, nil) },
	} {
		store := storage.NewMemory()
		if name != "claimed by others" {
			must(t, Claim(store, aCluster, nil))
		}
		var b storage.Batch
		storage.PutLearner(&b, "c", true)
		must(t, store.Commit(&b, true))
		must(t, leave(store))
		if nodes, err := storage.ReadLearners(store); err != nil || len(nodes) > 0 {
			t.Errorf("%s: the learners are %v, %v", name, nodes, err)
		}
	}
}

// An entry that asks for a digest finds the store as all before it have left it, in the middle of a batch
// too, and is skipped by a store that is past it.
func TestADigestIsOfTheStoreAtItsEntry(t *testing.T) {
	store, m := claimed(t)
	ask := (&Entry{Term: 1, Digest: true, Parts: 1}).Append(nil)
	var at []uint64
	var saw []bool
	m.Digest = func(index uint64) { at, saw = append(at, index), append(saw, has(store, "key")) }
	parts := putting(t, 1, 1, 20, "key")
	if len(parts) != 2 {
		t.Fatalf("%d parts", len(parts))
	}
	for i, e := range [][]byte{ask, parts[0], ask, parts[1], ask} {
		if err := m.Apply(uint64(i+2), 1, e); err != nil {
			t.Fatalf("entry %d: %v", i+2, err)
		}
	}
	if !slices.Equal(at, []uint64{2, 4, 6}) || !slices.Equal(saw, []bool{false, false, true}) {
		t.Errorf("digests at %v, with the batch: %v", at, saw)
	}
	if m.Applied() != 5 {
		t.Errorf("applied up to %d: a digest is no batch", m.Applied())
	}
	at = nil
	if err := m.Apply(4, 1, ask); err != nil || at != nil {
		t.Errorf("an entry that the store is past: %v, %v", at, err)
	}
	if err := m.Apply(7, 2, ask); !errors.Is(err, storage.ErrDeposed) || at != nil {
		t.Errorf("an entry of an earlier leadership: %v, %v", at, err)
	}
}

func TestADigestEntryHasNothingElse(t *testing.T) {
	good := Entry{Term: 1, Digest: true, Parts: 1}
	if got, err := ParseEntry(good.Append(nil)); err != nil || !got.Digest || got.Term != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, e := range []Entry{
		{Term: 1, Digest: true, Parts: 1, Number: 1}, {Term: 1, Digest: true, Parts: 2}, {Term: 1, Digest: true, Parts: 1, Bytes: []byte("x")},
		{Digest: true, Parts: 1}, {Term: 1, Parts: 1},
	} {
		if _, err := ParseEntry(e.Append(nil)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}
