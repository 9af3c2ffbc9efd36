//go:build cgo

package rocks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/faisca/fila/internal/tuning"
	"github.com/faisca/fila/storage"
)

func TestMessagesLeasesBudgetsAndResultsHaveLanes(t *testing.T) {
	byDefault := 4
	if !tuning.Enabled {
		byDefault = 0
	}
	for memtable, families := range map[Memtable]int{"": byDefault, DefaultMemtable: byDefault, Lanes: 4, SkipList: 0} {
		if n := countLanes(t, memtable); n != families {
			t.Errorf("memtable %q: %d families have lanes, want %d", memtable, n, families)
		}
	}
}

// countLanes returns how many families of a new store have lanes.
func countLanes(t *testing.T, memtable Memtable) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store")
	s, err := Open(Options{Path: path, Memtable: memtable})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	files, err := filepath.Glob(filepath.Join(path, "OPTIONS-*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file of options: %v", err)
	}
	text, err := os.ReadFile(slices.Max(files))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("memtable_factory=fila.Lanes"))
}

// TestLanesAreInOrder writes messages of few and of very many keys, in
// and out of the order of their ids, across several memtables.
func TestLanesAreInOrder(t *testing.T) {
	for _, keys := range []int{1, 7, 3000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Mode: LowSpace, Memtable: Lanes})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			rng := rand.New(rand.NewPCG(uint64(keys), 1))
			want := map[string]bool{}
			var live [][]byte
			var batch storage.Batch
			value := make([]byte, 600)
			for n := range uint64(30_000) {
				var id storage.ID
				at := n << 20
				if rng.IntN(4) == 0 {
					at = rng.Uint64N(at + 1) // a retried one, or a clock that is behind
				}
				binary.BigEndian.PutUint64(id[:], at)
				binary.BigEndian.PutUint64(id[8:], n)
				key := storage.AppendMessageKey(nil, 1+uint32(n%2), fmt.Sprintf("key-%d", rng.IntN(keys)), uint8(rng.IntN(3)), id)
				batch.Put(storage.Messages, key, value)
				want[string(key)] = true
				live = append(live, key)
				if len(live) > 500 {
					i := rng.IntN(len(live))
					batch.SingleDelete(storage.Messages, live[i])
					delete(want, string(live[i]))
					live[i] = live[len(live)-1]
					live = live[:len(live)-1]
				}
				if n%100 == 99 {
					if err := s.Commit(&batch, false); err != nil {
						t.Fatal(err)
					}
					batch.Reset()
				}
			}
			it := s.Scan(storage.Messages, nil, nil)
			defer it.Close()
			var last []byte
			for ok := it.Seek(nil); ok; ok = it.Next() {
				if bytes.Compare(last, it.Key()) >= 0 {
					t.Fatalf("%x does not come behind %x", it.Key(), last)
				}
				last = append(last[:0], it.Key()...)
				if !want[string(last)] {
					t.Fatalf("%x was deleted", last)
				}
				delete(want, string(last))
			}
			if err := it.Err(); err != nil {
				t.Fatal(err)
			}
			if len(want) > 0 {
				t.Errorf("%d messages are missing", len(want))
			}
			for _, key := range live {
				if _, err := s.Get(storage.Messages, key); err != nil {
					t.Fatalf("%x: %v", key, err)
				}
			}
		})
	}
}

// Results, which come in the order of the acks, are found each by itself and from the newest to the oldest, whether their
// memtable takes more, is full, or was read before.
func TestResultsInLanesAreReadBackwards(t *testing.T) {
	for _, read := range []string{"never", "sometimes"} {
		t.Run(read, func(t *testing.T) {
			s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Mode: LowSpace, Memtable: Lanes})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			rng := rand.New(rand.NewPCG(3, 1))
			var batch storage.Batch
			var want []string // keys of the store
			backwards := func(n int) {
				t.Helper()
				slices.Sort(want)
				it := s.Scan(storage.Results, nil, nil)
				defer it.Close()
				at := len(want)
				for ok := it.Before([]byte{0xFF}); ok && n > 0; ok = it.Before(it.Key()) {
					if at--; at < 0 || string(it.Key()) != want[at] {
						t.Fatalf("%x is read, %d before the last of %d", it.Key(), len(want)-at, len(want))
					}
					n--
				}
				if err := it.Err(); err != nil || n > 0 && at != 0 {
					t.Fatalf("%d of %d are missing: %v", at, len(want), err)
				}
			}
			const size, window = 100, 2000
			value := make([]byte, 300)
			for n, ended := range rng.Perm(window) { // the order in which messages of a window end
				for w := range 10 {
					at := 1_800_000_000_000_000_000 + int64(w*window+ended)*30_000
					key := storage.AppendResultKey(nil, 1+uint32(w%2), int64(w/4), storage.MakeID(at, uint32(ended), 5, uint32(n)))
					if want = append(want, string(key)); n > size && rng.IntN(20) == 0 { // a repair removes and adds
						batch.Delete(storage.Results, key)
					}
					batch.Put(storage.Results, key, value)
				}
				if n%size != size-1 {
					continue
				}
				if err := s.Commit(&batch, false); err != nil {
					t.Fatal(err)
				}
				batch.Reset()
				if read == "sometimes" {
					key := want[rng.IntN(len(want))]
					if _, err := s.Get(storage.Results, []byte(key)); err != nil {
						t.Fatalf("%x: %v", key, err)
					}
					if n/size%5 == 4 {
						backwards(500)
					}
				}
			}
			backwards(len(want) + 1)
			for _, key := range want {
				if _, err := s.Get(storage.Results, []byte(key)); err != nil {
					t.Fatalf("%x: %v", key, err)
				}
			}
		})
	}
}

// Keys of any form are in order, too: those that are shorter than what lanes take for
// an id, and those that are the beginning of others.
func TestLanesOfIrregularKeys(t *testing.T) {
	for _, read := range []string{"never", "sometimes"} {
		t.Run(read, func(t *testing.T) {
			s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Mode: LowSpace, Memtable: Lanes})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a seed
			live := map[string]string{}
			for range 400 {
				var batch storage.Batch
				for range 50 {
					key := make([]byte, 1+rng.IntN(40))
					for i := range key {
						key[i] = byte(rng.IntN(3) * 127)
					}
					value := make([]byte, 1000)
					binary.BigEndian.PutUint64(value, rng.Uint64())
					if _, ok := live[string(key)]; ok && rng.IntN(2) == 0 {
						batch.Delete(storage.Messages, key)
						delete(live, string(key))
						continue
					}
					batch.Put(storage.Messages, key, value)
					live[string(key)] = string(value)
				}
				if err := s.Commit(&batch, false); err != nil {
					t.Fatal(err)
				}
				if read == "sometimes" && rng.IntN(20) == 0 {
					for key, value := range live {
						if got, err := s.Get(storage.Messages, []byte(key)); err != nil || string(got) != value {
							t.Fatalf("%x: %.10x, %v", key, got, err)
						}
						break
					}
				}
			}
			it := s.Scan(storage.Messages, nil, nil)
			defer it.Close()
			for _, want := range slices.Sorted(maps.Keys(live)) {
				if !it.Next() || string(it.Key()) != want || string(it.Value()) != live[want] {
					t.Fatalf("%x instead of %x: %v", it.Key(), want, it.Err())
				}
			}
			if it.Next() {
				t.Errorf("%x was deleted", it.Key())
			}
		})
	}
}

// Readers beside the writer see all that was committed before they began, in order,
// through memtables that are being filled, are complete, and are flushed.
func TestLanesBesideReaders(t *testing.T) {
	t.Parallel()
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Mode: LowSpace, Memtable: Lanes})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const messages, keys, behind = 60_000, 40, 3000
	key := func(n uint64) []byte {
		var id storage.ID
		binary.BigEndian.PutUint64(id[:], n<<12)
		return storage.AppendMessageKey(nil, 1, fmt.Sprintf("key-%d", n%keys), 5, id)
	}
	var written, removed atomic.Uint64 // below these
	var readers sync.WaitGroup
	for r := range uint64(4) {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(r, 5)) //nolint:gosec // a seed
			for written.Load() < messages {
				upto := written.Load()
				if r%2 == 0 { // one message, and that it is the right one
					from := removed.Load() + behind/2
					if upto <= from {
						runtime.Gosched() // ThreadSanitizer holds back the signals that preempt a loop
						continue
					}
					n := from + rng.Uint64N(upto-from)
					got, err := s.Get(storage.Messages, key(n))
					if removed.Load() > n {
						continue
					}
					if err != nil || binary.BigEndian.Uint64(got) != n {
						t.Errorf("message %d of %d: %.8x, %v", n, upto, got, err)
						return
					}
					continue
				}
				// All of one key.
				k := rng.Uint64N(keys)
				prefix := key(k)
				prefix = prefix[:len(prefix)-len(storage.ID{})]
				it := s.Scan(storage.Messages, prefix, storage.After(prefix))
				seen := map[uint64]bool{}
				var last []byte
				for it.Next() {
					if bytes.Compare(last, it.Key()) >= 0 {
						t.Errorf("%x does not come behind %x", it.Key(), last)
					}
					last = append(last[:0], it.Key()...)
					seen[binary.BigEndian.Uint64(it.Value())] = true
				}
				err := it.Err()
				it.Close()
				gone := removed.Load() + behind/2
				for n := k; n < upto; n += keys {
					if n >= gone && !seen[n] {
						t.Errorf("message %d of %d is missing: %v", n, upto, err)
						return
					}
				}
			}
		})
	}
	var batch storage.Batch
	for n := range uint64(messages) {
		value := make([]byte, 300)
		binary.BigEndian.PutUint64(value, n)
		batch.Put(storage.Messages, key(n), value)
		if n >= behind {
			batch.SingleDelete(storage.Messages, key(n-behind))
		}
		if n%50 == 49 {
			if n >= behind {
				removed.Store(n - behind + 1)
			}
			if err := s.Commit(&batch, false); err != nil {
				t.Fatal(err)
			}
			batch.Reset()
			written.Store(n + 1)
		}
	}
	readers.Wait()
}

// A scan within a fairness key reads only its lane of each memtable, and uses the filters of
// tables: it returns the same records as a scan of everything, of the same snapshot.
func TestReadingWithinAKey(t *testing.T) {
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Mode: LowSpace, Memtable: Lanes})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rng := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // a seed
	const keys = 50
	name := func(k int) string { return fmt.Sprint("key-", k*k) } // some begin as others do
	var live [keys]map[string]string
	var old []opened
	for n := range 300 {
		var batch storage.Batch
		for range 100 {
			k := min(rng.IntN(keys), rng.IntN(keys))
			if live[k] == nil {
				live[k] = map[string]string{}
			}
			if rng.IntN(3) == 0 {
				for key := range live[k] {
					batch.SingleDelete(storage.Messages, []byte(key))
					delete(live[k], key)
					break
				}
				continue
			}
			var id storage.ID
			binary.BigEndian.PutUint64(id[:], uint64(n)-min(uint64(n), uint64(rng.IntN(4)/3*rng.IntN(50))))
			binary.BigEndian.PutUint64(id[8:], rng.Uint64())
			key := string(storage.AppendMessageKey(nil, 1, name(k), uint8(rng.IntN(2)), id))
			live[k][key] = fmt.Sprintf("%800d", n)
			batch.Put(storage.Messages, []byte(key), []byte(live[k][key]))
		}
		if err := s.Commit(&batch, false); err != nil {
			t.Fatal(err)
		}
		k := rng.IntN(keys + 1) // the last one has never been written
		prefix := storage.AppendKeyPrefix(nil, 1, name(k))
		var want []string
		if k < keys {
			want = slices.Sorted(maps.Keys(live[k]))
		}
		from := prefix
		if len(want) > 0 && rng.IntN(2) == 0 { // in the midst
			i := rng.IntN(len(want))
			from, want = []byte(want[i]), want[i:]
		}
		o := opened{it: s.Scan(storage.Messages, from, storage.After(prefix)), want: want, values: map[string]string{}}
		for _, key := range want {
			o.values[key] = live[k][key]
			if got, err := s.Get(storage.Messages, []byte(key)); err != nil || string(got) != live[k][key] {
				t.Fatalf("batch %d: %x: %v", n, key, err)
			}
		}
		if rng.IntN(2) == 0 && o.it.Next() { // it has looked into memtables before they change
			if len(want) == 0 || string(o.it.Key()) != want[0] {
				t.Fatalf("batch %d begins at %x", n, o.it.Key())
			}
			o.want = want[1:]
		}
		old = append(old, o)
		if len(old) > 5 {
			old[0].check(t)
			old = old[1:]
		}
	}
	for i := range old {
		old[i].check(t)
	}
}

// opened is an iterator, and what it has to see from where it is.
type opened struct {
	it     storage.Iterator
	want   []string
	values map[string]string
}

func (o *opened) check(t *testing.T) {
	t.Helper()
	defer o.it.Close()
	for _, want := range o.want {
		if !o.it.Next() || string(o.it.Key()) != want || string(o.it.Value()) != o.values[want] {
			t.Fatalf("%x instead of %x: %v", o.it.Key(), want, o.it.Err())
		}
	}
	if o.it.Next() {
		t.Fatalf("%x is too much", o.it.Key())
	}
}

func TestInHead(t *testing.T) {
	head := storage.AppendKeyPrefix(nil, 1, "a")
	last := storage.AppendKeyPrefix(nil, 1, "b")
	for _, tt := range []struct {
		name     string
		family   storage.Family
		from, to []byte
		want     bool
	}{
		{"a key", storage.Messages, head, storage.After(head), true},
		{"attempts", storage.Attempts, head, storage.After(head), true},
		{"a part of it", storage.Messages, slices.Concat(head, []byte{5}), slices.Concat(head, []byte{7}), true},
		{"two keys", storage.Messages, head, storage.After(last), false},
		{"no end", storage.Messages, head, nil, false},
		{"a queue", storage.Messages, head[:4], storage.After(head[:4]), false},
		{"half a name", storage.Messages, head[:len(head)-1], storage.After(head[:len(head)-1]), false},
		{"leases", storage.Leases, head, storage.After(head), false},
		{"the last key of all", storage.Messages, bytes.Repeat([]byte{0xFF}, 6+0xFFFF), nil, false},
	} {
		if got := withinKeyPrefix(tt.family, tt.from, tt.to); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// Iterators of a memtable are its own memory until it is flushed, so it has a bounded
// number of them: where a memtable is read and never replaced, later iterators are RocksDB's own.
func TestVeryManyReadersOfAMemtable(t *testing.T) {
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Memtable: Lanes})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var id storage.ID
	var batch storage.Batch
	for _, key := range []string{"a", "b", "c"} {
		batch.Put(storage.Messages, storage.AppendMessageKey(nil, 1, key, 5, id), []byte(key))
	}
	if err := s.Commit(&batch, false); err != nil {
		t.Fatal(err)
	}
	prefix := storage.AppendKeyPrefix(nil, 1, "b")
	const lent = 1 << 16 // as in lanes.cc
	for n := range lent + 1000 {
		it := s.Scan(storage.Messages, prefix, storage.After(prefix))
		if !it.Next() || string(it.Value()) != "b" || it.Next() || it.Err() != nil {
			t.Fatalf("reader %d: %q, %v", n, it.Value(), it.Err())
		}
		it.Close()
		if n == lent+500 { // and what comes later is seen
			batch.Reset()
			batch.Put(storage.Messages, storage.AppendMessageKey(nil, 1, "d", 5, id), nil)
			if err := s.Commit(&batch, false); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(storage.Messages, storage.AppendMessageKey(nil, 1, "d", 5, id)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
