//go:build cgo

package rocks_test

import (
	"bufio"
	"bytes"
	"errors"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/internal/testkit/smalldisk"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

const reserved = 4 << 20

func openWithReserve(t *testing.T, dir string) *rocks.Store {
	t.Helper()
	s, err := rocks.Open(rocks.Options{Path: dir, ReserveBytes: reserved})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// mount returns a disk of 80 MiB, or "" where none can be mounted:
// TestAStartOnAFullDiskServesReads has the injected form.
func mount(t *testing.T) string {
	t.Helper()
	disk := t.TempDir()
	if err := smalldisk.Mount(disk, 80<<20); err != nil {
		t.Log(err)
		return ""
	}
	t.Cleanup(func() {
		if err := smalldisk.Unmount(disk); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// fullStore returns a store with a backlog on a disk that was filled before it was opened; disk is "" where none can be
// mounted.
func fullStore(t *testing.T) (disk string, s *rocks.Store, keys [][]byte) {
	t.Helper()
	if disk = mount(t); disk == "" {
		return "", nil, nil
	}
	dir := filepath.Join(disk, "store")
	s = openWithReserve(t, dir)
	keys = backlog(t, s, 2000)
	if err := errors.Join(s.Close(), smalldisk.Fill(disk)); err != nil {
		t.Fatal(err)
	}
	return disk, openWithReserve(t, dir), keys
}

// backlog puts so many messages of 10,000 bytes into queue 1, and returns their keys.
func backlog(t *testing.T, s *rocks.Store, n int) (keys [][]byte) {
	t.Helper()
	var b storage.Batch
	for i := range n {
		key := storage.MessageKey{Queue: 1, Key: "k", ID: storage.ID{byte(i >> 8), byte(i)}}.Append(nil)
		keys = append(keys, key)
		b.Reset()
		b.Put(storage.Messages, key, bytes.Repeat([]byte{byte(i), byte(i >> 8), byte(i * 7)}, 3333))
		if err := s.Commit(&b, true); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	return keys
}

// TestAStoreOnAFullDiskCanBeEmptied starts on a disk without any space, deletes what is
// there, and goes on.
func TestAStoreOnAFullDiskCanBeEmptied(t *testing.T) {
	for _, x := range []struct {
		name            string
		tables, purging bool
	}{
		{"acks, what is there is in the log", false, false},
		{"acks, what is there is in tables", true, false},
		{"a purge, what is there is in the log", false, true},
		{"a purge, what is there is in tables", true, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			disk := mount(t)
			if disk == "" {
				return
			}
			dir := filepath.Join(disk, "store")
			s := openWithReserve(t, dir)
			if info, err := os.Stat(filepath.Join(dir, "fila-reserve")); err != nil || info.Size() != reserved {
				t.Fatalf("reserve %v, %v", info, err)
			}
			keys := backlog(t, s, 2000)
			if x.tables {
				copied := filepath.Join(disk, "copy")
				if err := errors.Join(s.Checkpoint(copied), os.RemoveAll(copied)); err != nil { // writes tables
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := smalldisk.Fill(disk); err != nil {
				t.Fatal(err)
			}
			s = openWithReserve(t, dir)
			if got := count(t, s); got != len(keys) {
				t.Fatalf("%d messages can be read, want %d", got, len(keys))
			}
			if !errors.Is(s.Full(), storage.ErrFull) {
				t.Fatalf("full: %v", s.Full())
			}
			if err := s.Relieve(); !errors.Is(err, storage.ErrFull) {
				t.Fatalf("relieved without free space: %v", err)
			}
			empty(t, s, keys, x.purging)
			// RocksDB deletes obsolete files on a thread of its own, after the flush has returned.
			testkit.Eventually(t, "deleting has freed space", func() bool { return s.Full() == nil || s.Relieve() == nil && s.Full() == nil })
			if _, err := os.Stat(filepath.Join(dir, "fila-reserve")); err != nil {
				t.Errorf("there is no reserve for the next time: %v", err)
			}
			backlog(t, s, 100)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := count(t, openWithReserve(t, dir)); got != 100 {
				t.Errorf("%d messages, want 100", got)
			}
		})
	}
}

// An attempt to make space that fails, since what is in memory does not fit, refuses no deletion beside it.
func TestDeletionsGoOnWhileSpaceIsMade(t *testing.T) {
	disk, s, keys := fullStore(t)
	if disk == "" {
		return
	}
	empty(t, s, keys[:1], false)
	const deletions = 100
	var relieving sync.WaitGroup
	over := make(chan struct{})
	relieving.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			if err := s.Relieve(); err != nil && !errors.Is(err, storage.ErrFull) { // most of them are skipped
				t.Errorf("making space: %v", err)
			}
		}
	})
	defer relieving.Wait()
	defer close(over)
	var b storage.Batch
	for n := range deletions {
		b.Reset()
		b.Delete(storage.Messages, keys[1+n])
		if err := s.Commit(&b, true); err != nil {
			t.Fatalf("deletion %d: %v", n, err)
		}
	}
}

// A store that lives in the space of its reserve, and loses that as well, comes back when it has a part
// of it again: the reserve is not there to be released once more.
func TestAFullStoreThatHasFailedIsReopenedWithoutAReserve(t *testing.T) {
	disk, s, keys := fullStore(t)
	if disk == "" {
		return
	}
	if err := smalldisk.Fill(disk); err != nil { // the space of the reserve
		t.Fatal(err)
	}
	var b storage.Batch
	for err := error(nil); err == nil; err = s.Commit(&b, true) {
		b.Put(storage.Messages, keys[0], make([]byte, 64<<10))
	}
	if err := s.Reopen(); err == nil {
		t.Fatal("reopened on a disk without any space")
	}
	ballast := filepath.Join(disk, "ballast")
	info, err := os.Stat(ballast)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(ballast, info.Size()-reserved*3/4); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Probe(), s.Reopen()); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(s.Full(), storage.ErrFull) {
		t.Errorf("full: %v", s.Full())
	}
	for n := range 3 { // attempts to make space that fail for lack of it
		empty(t, s, keys[n+1:n+2], false)
		if err := s.Relieve(); !errors.Is(err, storage.ErrFull) {
			t.Fatalf("relieved: %v", err)
		}
	}
	empty(t, s, nil, true)
	testkit.Eventually(t, "deleting has freed space", func() bool { return s.Full() == nil || s.Relieve() == nil && s.Full() == nil })
	backlog(t, s, 100)
}

// empty deletes all messages of queue 1.
func empty(t *testing.T, s *rocks.Store, keys [][]byte, purging bool) {
	t.Helper()
	var b storage.Batch
	if purging {
		prefix := storage.AppendQueuePrefix(nil, 1)
		b.DeleteRange(storage.Messages, prefix, storage.After(prefix))
		if err := s.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
		return
	}
	for n, k := range keys {
		b.Reset()
		b.SingleDelete(storage.Messages, k)
		if err := s.Commit(&b, true); err != nil {
			t.Fatalf("deletion %d: %v", n, err)
		}
	}
}

func count(t *testing.T, s *rocks.Store) (n int) {
	t.Helper()
	it := s.Scan(storage.Messages, nil, nil)
	defer it.Close()
	for it.Next() {
		n++
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAStartOnAFullDiskServesReads limits the size of files, so that no start can write
// what the log holds.
func TestAStartOnAFullDiskServesReads(t *testing.T) {
	if !alone(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
	t.Cleanup(func() { limitFiles(t, math.MaxUint64) })
	dir := newDir(t)
	s := openAt(t, dir)
	keys := backlog(t, s, 300)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	limitFiles(t, 100)
	before, err := smalldisk.Usage(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 13 {
		s, err := rocks.Open(rocks.Options{Path: dir, ReserveBytes: reserved})
		if err != nil {
			t.Fatal(err)
		}
		if got := count(t, s); got != len(keys) {
			t.Errorf("%d messages can be read, want %d", got, len(keys))
		}
		var b storage.Batch
		b.SingleDelete(storage.Messages, keys[0])
		if err := s.Commit(&b, true); !errors.Is(err, storage.ErrReopen) {
			t.Errorf("commit: %v", err)
		}
		// It tries again when the file system has more space than at its last attempt, as other processes free some.
		if err := s.Reopen(); err == nil || !strings.Contains(err.Error(), "cannot be written to") && !errors.Is(err, storage.ErrFull) {
			t.Errorf("reopen: %v", err)
		}
		if _, err := s.Stats(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if now, err := smalldisk.Usage(dir); err != nil || now > before+64<<10 {
			t.Fatalf("a start has left %d bytes, %v", now-before, err)
		}
	}
	s, err = rocks.Open(rocks.Options{Path: dir, ReserveBytes: reserved})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it was only read
	limitFiles(t, math.MaxUint64)
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	backlog(t, s, 1)
	if got := count(t, s); got != len(keys) {
		t.Errorf("%d messages, want %d", got, len(keys))
	}
}

// A store that was killed on a full disk, after opening it again had failed, is whole. A start does not take
// for damage what the writes without space have left.
func TestAStartOnAFullDiskIsNotTakenForDamage(t *testing.T) {
	for n := range 2 {
		disk := mount(t)
		if disk == "" {
			return
		}
		dir := filepath.Join(disk, "store")
		s := openWithReserve(t, dir)
		keys := backlog(t, s, 500+300*n)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := child(t.Context(), t, "fill", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		why, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		t.Log(strings.TrimSpace(why))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		switch s, err := rocks.Open(rocks.Options{Path: dir, ReserveBytes: reserved}); {
		case err == nil:
			if got := count(t, s); got < len(keys) {
				t.Errorf("%d messages can be read, want %d", got, len(keys))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		case errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "no space left on device"):
			t.Errorf("a start on a full disk: %v", err)
		default:
			t.Log(err)
		}
		if err := smalldisk.Empty(disk); err != nil {
			t.Fatal(err)
		}
		if got := count(t, openWithReserve(t, dir)); got < len(keys) {
			t.Errorf("with space again there are %d messages, want %d", got, len(keys))
		}
	}
}
