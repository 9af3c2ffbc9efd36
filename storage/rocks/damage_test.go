//go:build cgo

package rocks_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
	"github.com/faisca/fila/storage/storetest"
)

// filled makes a store with a hundred synced batches, of one message each, and
// closes it. With tables they are in a table file, else in the log.
func filled(t *testing.T, tables bool) (dir string) {
	t.Helper()
	dir = newDir(t)
	s := openAt(t, dir)
	for i := range 100 {
		put(t, s, storage.Messages, fmt.Sprintf("key%02d", i), strings.Repeat(fmt.Sprintf("value%02d", i), 10))
	}
	if tables {
		// A checkpoint writes everything to tables first.
		if err := s.Checkpoint(filepath.Join(t.TempDir(), "copy")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// largest returns the file of the store that matches and is the largest.
func largest(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	size := func(file string) int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	return slices.MaxFunc(files, func(a, b string) int { return int(size(a) - size(b)) })
}

func change(t *testing.T, file string, fn func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, fn(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func flipMiddle(b []byte) []byte {
	b[len(b)/2] ^= 0xFF
	return b
}

func TestATornEndOfTheLogIsDropped(t *testing.T) {
	t.Parallel()
	whole := filled(t, false)
	size := 0
	change(t, largest(t, whole, "*.log"), func(b []byte) []byte { size = len(b); return b })
	for name, tear := range map[string]func(b []byte) []byte{
		"a byte short":       func(b []byte) []byte { return b[:len(b)-1] },
		"half a record":      func(b []byte) []byte { return b[:len(b)-60] },
		"half a header":      func(b []byte) []byte { return append(b, 1, 2, 3) },
		"zeros behind it":    func(b []byte) []byte { return append(b, make([]byte, 10_000)...) },
		"a header, no more":  func(b []byte) []byte { return append(b, 1, 2, 3, 4, 200, 0, 1) },
		"a header and a bit": func(b []byte) []byte { return append(b, 1, 2, 3, 4, 200, 0, 1, 9, 9, 9) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t, false)
			cut := 0
			change(t, largest(t, dir, "*.log"), func(b []byte) []byte {
				b = tear(b)
				cut = size - len(b)
				return b
			})
			s := openAt(t, dir)
			want(t, s, "key00", strings.Repeat("value00", 10))
			want(t, s, "key98", strings.Repeat("value98", 10))
			_, err := s.Get(storage.Messages, []byte("key99"))
			if gone := errors.Is(err, storage.ErrNotFound); gone != (cut > 0) {
				t.Errorf("the last record: %v, although %d bytes were cut off", err, cut)
			}
			put(t, s, storage.Messages, "key99", "again")
			if err := s.Reopen(); err != nil {
				t.Fatal(err)
			}
			want(t, s, "key99", "again")
		})
	}
}

func TestDamageInTheLogIsReported(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"a changed byte":   flipMiddle,
		"a changed start":  func(b []byte) []byte { b[20] ^= 0xFF; return b },
		"a missing record": func(b []byte) []byte { return append(b[:len(b)/2:len(b)/2], b[len(b)/2+50:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t, false)
			change(t, largest(t, dir, "*.log"), damage)
			wantRefusal(t, dir, storage.ErrCorrupt)
		})
	}
}

// The log of a node may be torn anywhere behind its last sync: it is read up to the first damage,
// and nothing that lies behind that. So the store is as it was after some batch, in all families.
func TestTheLogOfANodeIsReadUpToItsFirstDamage(t *testing.T) {
	const batches, flushed = 100, 40
	for name, damage := range map[string]func(b []byte) []byte{
		"nothing":          func(b []byte) []byte { return b },
		"a changed byte":   flipMiddle,
		"a missing record": func(b []byte) []byte { return append(b[:len(b)/2:len(b)/2], b[len(b)/2+50:]...) },
		"a page of zeros":  func(b []byte) []byte { clear(b[len(b)/3 : len(b)/3+200]); return b },
		// At the beginning of a record RocksDB takes it for the end of a block: the records of the
		// next block would follow.
		"zeros at a record": func(b []byte) []byte { clear(b[2<<15 : 2<<15+4096]); return b },
		// Behind a block of zeros, a record without its beginning follows, or a wrong one.
		"a block of zeros": func(b []byte) []byte { clear(b[2<<15 : 3<<15]); return b },
		"zeros to the end": func(b []byte) []byte { clear(b[2<<15 : 3<<15]); return b[:3<<15] },
		"zeros, then a wrong end": func(b []byte) []byte {
			clear(b[2<<15 : 3<<15])
			b[3<<15+100] ^= 0xff
			return b[:3<<15+5000]
		},
		"zeros, then an end without its beginning": func(b []byte) []byte {
			clear(b[2<<15 : 3<<15])
			return b[:3<<15+4100]
		},
		"a torn end":      func(b []byte) []byte { return b[:len(b)-60] },
		"a changed start": func(b []byte) []byte { b[20] ^= 0xFF; return b },
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			open := func() *rocks.Store {
				s, err := rocks.Open(rocks.Options{Path: dir, Replica: true})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := open()
			key := func(i int) []byte { return fmt.Appendf(nil, "key%02d", i) }
			for i := range batches {
				if i == flushed {
					if err := s.Checkpoint(filepath.Join(t.TempDir(), "copy")); err != nil { // writes tables first
						t.Fatal(err)
					}
				}
				var b storage.Batch
				b.Put(storage.Messages, key(i), bytes.Repeat([]byte("m"), 4010)) // a record of the log is a page then
				b.Put(storage.Leases, key(i), bytes.Repeat([]byte("l"), 40))
				if i > 0 {
					b.SingleDelete(storage.Leases, key(i-1))
				}
				if err := s.Commit(&b, false); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			change(t, largest(t, dir, "*.log"), damage)
			if whole := name == "nothing" || name == "a torn end" || name == "zeros to the end"; !whole {
				plain := newDir(t)
				storetest.CopyFiles(t, plain, dir)
				wantRefusal(t, plain, storage.ErrCorrupt)
			}
			s = open()
			n := 0
			for has(t, s, storage.Messages, key(n)) {
				n++
			}
			for i := range batches {
				if message, lease := has(t, s, storage.Messages, key(i)), has(t, s, storage.Leases, key(i)); message != (i < n) || lease != (i == n-1) {
					t.Errorf("of the first %d batches, batch %d has a message: %v, and a lease: %v", n, i, message, lease)
				}
			}
			if n < flushed || name == "nothing" && n < batches || name != "nothing" && n == batches {
				t.Errorf("%d of %d batches are there", n, batches)
			}
			put(t, s, storage.Messages, string(key(n)), "again")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open()
			want(t, s, string(key(n)), "again")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func has(t *testing.T, s *rocks.Store, f storage.Family, key []byte) bool {
	t.Helper()
	_, err := s.Get(f, key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestADamagedTableIsReportedAndNeverPanics(t *testing.T) {
	dir := filled(t, true)
	change(t, largest(t, dir, "*.sst"), func(b []byte) []byte {
		for i := range min(len(b)/2, 2000) {
			b[i] ^= 0x5A // the data blocks come first
		}
		return b
	})
	s, err := rocks.Open(rocks.Options{Path: dir})
	if err != nil {
		if !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("open: %v", err)
		}
		return
	}
	defer s.Close() //nolint:errcheck // it is damaged
	if v, err := s.Get(storage.Messages, []byte("key50")); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "6b65793530") {
		t.Errorf("get %q, %v; want an error that names the key", v, err)
	} else if !errors.Is(err, storage.ErrUnreadable) || strings.Contains(err.Error(), dir) {
		t.Errorf("%v: want %v, and no path of this machine", err, storage.ErrUnreadable)
	}
	it := s.Scan(storage.Messages, nil, nil)
	defer it.Close()
	for it.Next() {
		t.Errorf("scan is at %q", it.Key())
	}
	if !errors.Is(it.Err(), storage.ErrCorrupt) || !errors.Is(it.Err(), storage.ErrUnreadable) || strings.Contains(it.Err().Error(), dir) {
		t.Errorf("scan: %v", it.Err())
	}
}

func TestDamagedFilesAreReported(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, pattern string
		damage        func(b []byte) []byte
	}{
		{"a manifest with a changed byte", "MANIFEST-*", flipMiddle},
		{"a manifest cut in half", "MANIFEST-*", func(b []byte) []byte { return b[:len(b)/2] }},
		{"an empty manifest", "MANIFEST-*", func([]byte) []byte { return nil }},
		{"CURRENT with junk", "CURRENT", func([]byte) []byte { return []byte("junk") }},
		{"CURRENT of a manifest that is none", "CURRENT", func([]byte) []byte { return []byte("MANIFEST-999999\n") }},
		{"an empty CURRENT", "CURRENT", func([]byte) []byte { return nil }},
		{"a table cut short", "*.sst", func(b []byte) []byte { return b[:len(b)/2] }},
		{"an empty table", "*.sst", func([]byte) []byte { return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filled(t, true)
			change(t, largest(t, dir, tt.pattern), tt.damage)
			wantRefusal(t, dir, storage.ErrCorrupt)
		})
	}
}

func TestMissingFilesAreReported(t *testing.T) {
	for _, pattern := range []string{"CURRENT", "MANIFEST-*", "*.sst"} {
		t.Run(pattern, func(t *testing.T) {
			dir := filled(t, true)
			if err := os.Remove(largest(t, dir, pattern)); err != nil {
				t.Fatal(err)
			}
			wantRefusal(t, dir, storage.ErrCorrupt)
		})
	}
}

// limitFiles makes writes beyond a file size fail, as on a full disk.
func limitFiles(t *testing.T, bytes uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = min(bytes, limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
}

func TestAFullDiskIsGotOver(t *testing.T) {
	if !alone(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
	t.Cleanup(func() { limitFiles(t, math.MaxUint64) })

	dir := newDir(t)
	s := openAt(t, dir)
	value := bytes.Repeat([]byte("x"), 10_000)
	var b storage.Batch
	fill := func(n int) {
		b.Reset()
		b.Put(storage.Messages, fmt.Appendf(nil, "a%04d", n), value)
		b.Put(storage.Messages, fmt.Appendf(nil, "b%04d", n), value)
	}
	limitFiles(t, 700_000)
	n, err := 0, error(nil)
	for ; err == nil; n++ {
		if n == 1000 {
			t.Fatal("the disk is never full")
		}
		fill(n)
		err = s.Commit(&b, true)
	}
	n-- // the one that failed
	t.Logf("batch %d: %v", n, err)

	check := func(when string) {
		t.Helper()
		it := s.Scan(storage.Messages, nil, nil)
		keys := 0
		for it.Next() {
			keys++
		}
		if err := it.Err(); err != nil {
			t.Errorf("%s: scan: %v", when, err)
		}
		it.Close()
		if keys != 2*n {
			t.Errorf("%s: %d keys, want %d", when, keys, 2*n)
		}
		want(t, s, fmt.Sprintf("b%04d", n-1), string(value))
	}
	check("after the failure")
	if err := s.Commit(&b, true); !errors.Is(err, storage.ErrReopen) {
		t.Errorf("the next commit: %v", err)
	}
	if err := s.Sync(); !errors.Is(err, storage.ErrReopen) {
		t.Errorf("the next sync: %v", err)
	}
	for range 2 {
		if err := s.Reopen(); err == nil || !strings.Contains(err.Error(), "cannot be written to") && !errors.Is(err, storage.ErrFull) {
			t.Errorf("reopen on the full disk: %v", err)
		}
		check("while the disk is full")
	}
	limitFiles(t, math.MaxUint64)
	if err := s.Commit(&b, true); !errors.Is(err, storage.ErrReopen) {
		t.Errorf("commit before reopen: %v", err)
	}
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	check("after reopen")
	fill(n)
	if err := s.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	n++
	check("after the next commit")
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	check("after one more reopen")
}

// When opening fails although the disk takes writes, the reads are gone too,
// but the store is not: Reopen may be tried until it works.
func TestAReopenThatFailsMayBeRepeated(t *testing.T) {
	dir := newDir(t)
	s := openAt(t, dir)
	put(t, s, storage.Messages, "a", "1")
	current := filepath.Join(dir, "CURRENT")
	if err := os.Rename(current, current+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Reopen(); !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("reopen: %v", err)
		}
		if _, err := s.Get(storage.Messages, []byte("a")); !errors.Is(err, storage.ErrClosed) || !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("get: %v", err)
		}
		it := s.Scan(storage.Messages, nil, nil)
		if it.Next() || !errors.Is(it.Err(), storage.ErrClosed) {
			t.Errorf("scan: %v", it.Err())
		}
		it.Close()
		if _, err := s.Stats(); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("stats: %v", err)
		}
	}
	if err := os.Rename(current+".away", current); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	want(t, s, "a", "1")
	put(t, s, storage.Messages, "b", "1")
}
