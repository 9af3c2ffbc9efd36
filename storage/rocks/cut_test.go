//go:build cgo

package rocks

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/tuning"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks/files"
	"github.com/faisca/fila/storage/storetest"
)

// openedLog is the log of a store that was killed: where its batches begin, and up to where it was
// synced before each of them was written.
type openedLog struct {
	dir, name string
	data      []byte
	begin     []int64 // of the batches, and where the last one ends
	synced    []int64
}

// makeLog writes batches of any size, one of them of at least large bytes, synced or not. Without spares
// the log is an ordinary file.
func makeLog(t *testing.T, chance *rand.Rand, spares, large int) openedLog {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	p, err := profileOf(Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.spares = spares
	s, err := open(dir, p)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // its copy is looked at
	l := openedLog{dir: filepath.Join(t.TempDir(), "killed")}
	syncedAfter := []int{1} // by number of the batch: how many are synced then. The first is the format version
	often := chance.IntN(4)
	for n := 1; n < 40; n++ {
		value := make([]byte, []int{10, 600, 5000, 40_000, 110_000}[chance.IntN(5)]*(1+chance.IntN(100))/100)
		if n == 10 {
			value = make([]byte, large)
		}
		for i := range value {
			value[i] = byte(1 + chance.IntN(255))
		}
		var b storage.Batch
		b.Put(storage.Messages, fmt.Appendf(nil, "%04d", n), value)
		sync, later := chance.IntN(4) <= often, chance.IntN(12) == 0
		if err := s.Commit(&b, sync); err != nil {
			t.Fatal(err)
		}
		syncedAfter = append(syncedAfter, syncedAfter[n-1])
		if sync || later {
			syncedAfter[n] = n + 1
		}
		if later {
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.CopyFiles(t, l.dir, dir)
	logs, err := filepath.Glob(filepath.Join(l.dir, "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%v, %v", logs, err)
	}
	l.name = logs[0]
	if l.data, err = os.ReadFile(l.name); err != nil {
		t.Fatal(err)
	}
	if _, err := files.ReadBatches(l.name, func(b files.Batch, err error) error {
		l.begin = append(l.begin, b.At)
		return err
	}); err != nil || len(l.begin) != len(syncedAfter) {
		t.Fatalf("%d batches of %d, %v", len(l.begin), len(syncedAfter), err)
	}
	end := int64(len(l.data))
	for l.data[end-1] == 0 {
		end--
	}
	l.begin = append(l.begin, end)
	for n := range syncedAfter {
		before := 0
		if n > 0 {
			before = syncedAfter[n-1]
		}
		l.synced = append(l.synced, l.begin[before])
	}
	return l
}

// A disk may keep any sectors of what was not synced, in the moment of a batch or behind it. The store
// opens, with a beginning of the batches that has all that were synced.
func TestALogOpensAfterAnyLossOfPower(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	chance := rand.New(rand.NewPCG(seed, 0))
	if !tuning.Enabled || strings.HasPrefix(Version(), "6.") {
		t.Skip("a log grows as it is written, and batches do not say what was synced")
	}
	cut := 0
	logs := 8
	if testing.Short() {
		logs = 4
	}
	for n := range logs {
		l := makeLog(t, chance, n%2*sparesMost, []int{1000, spareBytes}[n/2%2])
		if want := (1 + n/2%2) * spareBytes; len(l.data) != want {
			t.Fatalf("seed %d: a log that is open has %d bytes, want %d", seed, len(l.data), want)
		}
		for range 20 {
			last := 1 + chance.IntN(len(l.synced)-1)
			from, to := l.synced[last], l.begin[last+1]
			b := slices.Clone(l.data)
			clear(b[to:])
			how, one, few := chance.IntN(4), from+chance.Int64N(to-from), 1+chance.IntN(9)
			for at := from; at < to; {
				next := min(at-at%512+512, to)
				var gone bool
				switch how {
				case 0:
					gone = chance.IntN(10) < few
				case 1:
					gone = at%(32<<10) < 512 // the beginning of each block
				case 2:
					gone = one >= at && one < next
				default:
					gone = one < at
				}
				if gone {
					clear(b[at:next])
				}
				at = next
			}
			if err := os.WriteFile(l.name, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := checkSurvey(l.dir, false); err != nil {
				t.Fatalf("seed %d: batch %d at %d, synced up to %d, loss %d: %v", seed, last, l.begin[last], from, how, err)
			}
			kept := 0
			if _, err := files.ReadBatches(l.name, func(got files.Batch, err error) error {
				if got.At != l.begin[kept] {
					t.Fatalf("seed %d: batch %d is at %d", seed, kept, got.At)
				}
				kept++
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if l.begin[kept] < from || kept > last+1 {
				t.Fatalf("seed %d: %d batches are left, up to %d, and %d were synced", seed, kept, l.begin[kept], from)
			}
			if info, err := os.Stat(l.name); err == nil && info.Size() < int64(len(b)) {
				cut++
			}
		}
	}
	if cut == 0 {
		t.Error("nothing was cut off")
	}
}

// A log that was closed in order has what was written, whatever its length was before.
func TestALogThatIsClosedHasNoHole(t *testing.T) {
	p, err := profileOf(Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.spares = 0
	for _, full := range []profile{p, p.withoutSpace()} {
		dir := filepath.Join(t.TempDir(), "store")
		s, err := open(dir, full)
		if err != nil {
			t.Fatal(err)
		}
		var b storage.Batch
		b.Put(storage.Messages, []byte("key"), []byte("value"))
		if err := s.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n := logBytes(dir); n >= spareBytes {
			t.Errorf("%d bytes of log are left", n)
		}
	}
}

// A copy of the log, as a backup makes it, ends where something was written.
func TestACopyOfALogThatIsBeingWrittenIsNotTorn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		value := make([]byte, 400_000)
		for i := range value {
			value[i] = byte(i | 1)
		}
		for n := 0; ; n++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			var b storage.Batch
			b.Put(storage.Messages, fmt.Appendf(nil, "%06d", n%50), value[:1+n*7919%len(value)])
			if err := s.Commit(&b, n%2 == 0); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for n := range 20 {
		to := filepath.Join(t.TempDir(), fmt.Sprint("copy", n))
		if err := s.Checkpoint(to); err != nil {
			t.Fatal(err)
		}
		i, err := Inspect(to)
		if err != nil {
			t.Fatal(err)
		}
		if i.Torn != "" || i.Fatal {
			t.Errorf("copy %d: %s%+v", n, i.Torn, i.Damage)
		}
		i.Close()
		if n := logBytes(to); n > 0 && n%spareBytes == 0 {
			t.Errorf("a copy has %d bytes of log, more than what was written", n)
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
