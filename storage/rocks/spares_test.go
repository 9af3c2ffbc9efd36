//go:build cgo

package rocks_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/internal/tuning"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
	"github.com/faisca/fila/storage/rocks/files"
	"github.com/faisca/fila/storage/storetest"
)

// cutOff copies a store that is open to a new directory, as a loss of power might leave it at this
// moment if change is what it did to the newest log.
func cutOff(t *testing.T, dir string, change func(log string, b []byte) []byte) (after string) {
	t.Helper()
	after = newDir(t)
	storetest.CopyFiles(t, after, dir)
	names, err := filepath.Glob(filepath.Join(after, "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no log: %v", err)
	}
	log := slices.Max(names)
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, change(log, b), 0o600); err != nil {
		t.Fatal(err)
	}
	return after
}

// recordsOf returns where the records of a log begin and end.
func recordsOf(t *testing.T, log string) (begin, end []int64) {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.ReadBatches(log, func(b files.Batch, err error) error {
		if begin = append(begin, b.At); len(begin) > 1 {
			end = append(end, b.At)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return begin, append(end, int64(len(bytes.TrimRight(b, "\x00"))))
}

// needSpares skips a test where logs are made of no spares: a property of the build, of RocksDB, and
// of the file system that the tests are on.
func needSpares(t *testing.T) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &fs); err != nil {
		t.Fatal(err)
	}
	if !tuning.Enabled || strings.HasPrefix(rocks.Version(), "6.") || fs.Type != unix.EXT4_SUPER_MAGIC && fs.Type != unix.XFS_SUPER_MAGIC {
		t.Skip("logs are ordinary files here")
	}
}

// commitOne commits a message and nothing else.
func commitOne(t *testing.T, s *rocks.Store, key string, bytes int, sync bool) {
	t.Helper()
	var b storage.Batch
	b.Put(storage.Messages, []byte(key), []byte(strings.Repeat("v", bytes)))
	if err := s.Commit(&b, sync); err != nil {
		t.Fatal(err)
	}
}

func TestALogIsWrittenOverZerosAndCutToItsLength(t *testing.T) {
	needSpares(t)
	dir := newDir(t)
	s := openAt(t, dir)
	put(t, s, storage.Messages, "key", "value")
	if info, err := os.Stat(largest(t, dir, "*.log")); err != nil || info.Size() < 1<<20 {
		t.Errorf("the log is no spare: %v, %v", info, err)
	}
	killed := cutOff(t, dir, func(_ string, b []byte) []byte { return b })
	for i := range 3 {
		if err := os.WriteFile(filepath.Join(killed, fmt.Sprint("fila-spare-", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again := openAt(t, killed)
	want(t, again, "key", "value")
	for _, s := range []*rocks.Store{s, again} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{dir, killed} {
		if info, err := os.Stat(largest(t, dir, "*.log")); err != nil || info.Size() > 4<<10 {
			t.Errorf("the log was not cut: %v, %v", info, err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "fila-spare-*")); err != nil || len(left) > 0 {
			t.Errorf("%v left, %v", left, err)
		}
	}
}

// Whatever part of the last write a disk has kept: that write was not acknowledged, and everything
// before it is there.
func TestAWriteThatTheDiskHasNotKeptIsCutOff(t *testing.T) {
	t.Parallel()
	needSpares(t)
	const sector = 512
	chance := rand.New(rand.NewPCG(1, 2))
	sizes := []int{505, 200_000, 1, 40_000}
	if testing.Short() {
		sizes = sizes[:2]
	}
	for _, size := range sizes {
		dir := newDir(t)
		s := openAt(t, dir)
		for i := range 10 {
			put(t, s, storage.Messages, fmt.Sprintf("key%02d", i), "value")
		}
		commitOne(t, s, "last", size, true)
		// Some sectors by chance, all from a sector on, and the first one of each block.
		for round := range 10 {
			lost := 0
			from, to := int64(0), int64(0)
			gone := func(int64) bool { return chance.IntN(3) == 0 }
			after := cutOff(t, dir, func(log string, b []byte) []byte {
				begin, end := recordsOf(t, log)
				from, to = begin[len(begin)-1], end[len(end)-1]
				switch {
				case round == 0:
					gone = func(at int64) bool { return at%(32<<10) == 0 }
				case round < 5:
					kept := from + (to-from)*int64(round)/5
					gone = func(at int64) bool { return at >= kept }
				}
				for at := from; at < to; {
					next := min(at-at%sector+sector, to)
					if gone(at) || next == to && lost == 0 {
						clear(b[at:next])
						lost++
					}
					at = next
				}
				return b
			})
			s := openAt(t, after)
			want(t, s, "key09", "value")
			if has(t, s, storage.Messages, []byte("last")) {
				t.Errorf("%d bytes, round %d: a write of which %d sectors are lost is there", size, round, lost)
			}
			put(t, s, storage.Messages, "key10", "value")
			if err := s.Reopen(); err != nil {
				t.Fatal(err)
			}
			want(t, s, "key10", "value")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What was synced is not taken for what a disk has not kept.
func TestDamageOfWhatWasSyncedIsNoTornEnd(t *testing.T) {
	t.Parallel()
	needSpares(t)
	dir := newDir(t)
	s := openAt(t, dir)
	defer s.Close() //nolint:errcheck // the copies are what is looked at
	commitOne(t, s, "a", 3000, true)
	commitOne(t, s, "b", 3000, true)
	commitOne(t, s, "c", 3000, false)
	commitOne(t, s, "d", 3000, false)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	commitOne(t, s, "e", 3000, true)
	var begin, end []int64
	cutOff(t, dir, func(log string, b []byte) []byte {
		begin, end = recordsOf(t, log)
		return b
	})
	if len(begin) < 5 {
		t.Fatalf("%d records", len(begin))
	}
	// The first record is the format version of a new store.
	for n := range begin[:len(begin)-1] {
		after := cutOff(t, dir, func(_ string, b []byte) []byte {
			clear(b[begin[n]:end[n]])
			return b
		})
		wantRefusal(t, after, storage.ErrCorrupt)
	}
	// The last one has no zeros where something else was written. Its length is left alone: a larger one
	// reaches into the zeros behind, as that of a record of which the disk has kept a part.
	const lengthAt, lengthBytes = 4, 2
	for range 20 {
		after := cutOff(t, dir, func(_ string, b []byte) []byte {
			at := rand.Int64N(3000)
			if at >= lengthAt && at < lengthAt+lengthBytes {
				at = 0
			}
			b[begin[len(begin)-1]+at] ^= 0x10
			return b
		})
		wantRefusal(t, after, storage.ErrCorrupt)
	}
}

// A write that is synced may reach the disk without those before it that are not, until its sync
// has ended: none of them is acknowledged before.
func TestAWriteBehindOneThatTheDiskHasNotKeptIsCutOff(t *testing.T) {
	needSpares(t)
	dir := newDir(t)
	s := openAt(t, dir)
	defer s.Close() //nolint:errcheck // the copies are what is looked at
	put(t, s, storage.Messages, "a", "value")
	commitOne(t, s, "unsynced", 3000, false)
	commitOne(t, s, "unsynced too", 3000, false)
	commitOne(t, s, "b", 3000, true)
	unkept := func(n int) func(string, []byte) []byte {
		return func(log string, b []byte) []byte {
			begin, _ := recordsOf(t, log)
			at := begin[len(begin)-n] + 1000
			clear(b[at-at%512 : at-at%512+512])
			return b
		}
	}
	after := openAt(t, cutOff(t, dir, unkept(3)))
	want(t, after, "a", "value")
	for _, key := range []string{"unsynced", "unsynced too", "b"} {
		if has(t, after, storage.Messages, []byte(key)) {
			t.Errorf("%s is there, without what was written before", key)
		}
	}
	if err := after.Close(); err != nil {
		t.Fatal(err)
	}
	// A further write says that b was synced, and with it everything before.
	put(t, s, storage.Messages, "c", "value")
	for n := 2; n <= 4; n++ {
		wantRefusal(t, cutOff(t, dir, unkept(n)), storage.ErrCorrupt)
	}
}

func TestALogThatIsUsedAgainShowsNothingOfItsPast(t *testing.T) {
	t.Parallel()
	needSpares(t)
	dir := newDir(t)
	s, err := rocks.Open(rocks.Options{Path: dir, Mode: rocks.LowSpace}) // few logs, and two spares
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the copies are what is looked at
	held := func() (names []string) {
		names, err := filepath.Glob(filepath.Join(dir, "fila-spare-*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	testkit.Eventually(t, "there are two spares", func() bool { return len(held()) >= 2 })
	// A second name, as a copy of the store might have it: what it shows must not change.
	first := slices.Min(glob(t, dir, "*.log"))
	copied := filepath.Join(t.TempDir(), "copy.log")
	if err := os.Link(first, copied); err != nil {
		t.Fatal(err)
	}
	n := 0
	fill := func(upTo int) {
		for ; n < upTo; n++ {
			commitOne(t, s, fmt.Sprintf("key%06d", n), 10_000, n%10 == 0)
		}
	}
	fill(400)
	was, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	for upTo := 1000; upTo <= 6000; upTo += 1000 {
		fill(upTo)
		after := openAt(t, copyAtRest(t, dir))
		for _, i := range []int{0, n / 2, n - 1} {
			if !has(t, after, storage.Messages, fmt.Appendf(nil, "key%06d", i)) {
				t.Errorf("message %d of %d is missing", i, n)
			}
		}
		if c := count(t, after); c != n {
			t.Errorf("%d messages, want %d", c, n)
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Contains(glob(t, dir, "*.log"), first) {
		t.Fatal("the first log is still there")
	}
	if is, err := os.ReadFile(copied); err != nil || !bytes.Equal(is[:len(bytes.TrimRight(was, "\x00"))], bytes.TrimRight(was, "\x00")) {
		t.Errorf("a copy of the log has changed, %v", err)
	}
}

// copyAtRest copies a store that is open while RocksDB makes, changes and removes no files of it.
func copyAtRest(t *testing.T, dir string) (copied string) {
	t.Helper()
	now := func() (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				all = append(all, fmt.Sprint(e.Name(), info.Size(), info.ModTime()))
			}
		}
		return all
	}
	testkit.Eventually(t, "nothing has changed during a copy", func() bool {
		before := now()
		copied = cutOff(t, dir, func(_ string, b []byte) []byte { return b })
		return slices.Equal(before, now())
	})
	return copied
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return names
}
