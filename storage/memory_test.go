package storage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/storetest"
)

// A memory store has no directory. To open one again is to clone what was
// left in memory, and the directory of a checkpoint is read.
func TestMemoryIsAStore(t *testing.T) {
	stores := map[string]*storage.Memory{}
	storetest.Exercise(t, func(t *testing.T, dir string) storetest.Store {
		t.Helper()
		switch old := stores[dir]; {
		case old != nil:
			stores[dir] = old.Clone()
		case exists(dir):
			m, err := storage.OpenCheckpoint(dir)
			if err != nil {
				t.Fatal(err)
			}
			stores[dir] = m
		default:
			stores[dir] = storage.NewMemory()
		}
		return stores[dir]
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func commit(t *testing.T, m *storage.Memory, sync bool, fill func(b *storage.Batch)) {
	t.Helper()
	var b storage.Batch
	fill(&b)
	if err := m.Commit(&b, sync); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, m *storage.Memory, sync bool, keys ...string) {
	t.Helper()
	commit(t, m, sync, func(b *storage.Batch) {
		for _, k := range keys {
			b.Put(storage.Messages, []byte(k), nil)
		}
	})
}

func keysOf(t *testing.T, m *storage.Memory) string {
	t.Helper()
	it := m.Scan(storage.Messages, nil, nil)
	defer it.Close()
	var keys []string
	for it.Next() {
		keys = append(keys, string(it.Key()))
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(keys, " ")
}

func wantKeys(t *testing.T, m *storage.Memory, want string) {
	t.Helper()
	if got := keysOf(t, m); got != want {
		t.Errorf("keys %q, want %q", got, want)
	}
}

func TestSingleDeleteContractIsChecked(t *testing.T) {
	key := []byte("the-key")
	for name, tt := range map[string]struct {
		before func(b *storage.Batch)
		want   string
	}{
		"never put":  {func(*storage.Batch) {}, "does not exist"},
		"put twice":  {func(b *storage.Batch) { b.Put(storage.Messages, key, nil); b.Put(storage.Messages, key, nil) }, "more than once"},
		"deleted":    {func(b *storage.Batch) { b.Put(storage.Messages, key, nil); b.Delete(storage.Messages, key) }, "does not exist"},
		"gone twice": {func(b *storage.Batch) { b.Put(storage.Messages, key, nil); b.SingleDelete(storage.Messages, key) }, "does not exist"},
		"in a range": {func(b *storage.Batch) {
			b.Put(storage.Messages, key, nil)
			b.DeleteRange(storage.Messages, key, storage.After(key))
		}, "does not exist"},
		"other family": {func(b *storage.Batch) { b.Put(storage.Leases, key, nil) }, "does not exist"},
	} {
		for _, oneBatch := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/oneBatch=%v", name, oneBatch), func(t *testing.T) {
				m := storage.NewMemory()
				put(t, m, false, "a", "b", "c")
				var b storage.Batch
				tt.before(&b)
				if !oneBatch {
					if err := m.Commit(&b, false); err != nil {
						t.Fatal(err)
					}
					b.Reset()
				}
				before := keysOf(t, m)
				b.Put(storage.Messages, []byte("a"), []byte("changed"))
				b.SingleDelete(storage.Messages, []byte("b"))
				b.DeleteRange(storage.Messages, []byte("c"), []byte("d"))
				b.Put(storage.Messages, []byte("e"), nil)
				b.SingleDelete(storage.Messages, key)
				err := m.Commit(&b, true)
				if !errors.Is(err, storage.ErrSingleDelete) || !strings.Contains(err.Error(), "the-key") ||
					!strings.Contains(err.Error(), tt.want) {
					t.Fatalf("%v, want one that names the key and says that it %s", err, tt.want)
				}
				wantKeys(t, m, before)
				if v, err := m.Get(storage.Messages, []byte("a")); err != nil || len(v) != 0 {
					t.Errorf("a refused batch left %q, %v", v, err)
				}
				// A refusal changes nothing, not even how often a key was put.
				commit(t, m, false, func(b *storage.Batch) { b.SingleDelete(storage.Messages, []byte("a")) })
			})
		}
	}
}

func TestAPowerLossKeepsWhatWasSynced(t *testing.T) {
	m := storage.NewMemory()
	wantKeys(t, m.CloneSynced(), "")
	put(t, m, true, "a")
	wantKeys(t, m.CloneSynced(), "a")
	put(t, m, false, "b")
	put(t, m, false, "c")
	wantKeys(t, m.CloneSynced(), "a")
	wantKeys(t, m.Clone(), "a b c")
	wantKeys(t, m.Clone().CloneSynced(), "a")
	put(t, m, true, "d") // what came before a synced commit is synced with it
	wantKeys(t, m.CloneSynced(), "a b c d")
	commit(t, m, false, func(b *storage.Batch) { b.DeleteRange(storage.Messages, []byte("a"), []byte("d")) })
	wantKeys(t, m.CloneSynced(), "a b c d")
	if err := m.Sync(); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, m.CloneSynced(), "d")
}

func TestClonesGoTheirOwnWays(t *testing.T) {
	m := storage.NewMemory()
	put(t, m, true, "a")
	c := m.Clone()
	put(t, m, true, "m")
	put(t, c, true, "c")
	d := c.CloneSynced()
	put(t, d, true, "d")
	wantKeys(t, m, "a m")
	wantKeys(t, c, "a c")
	wantKeys(t, d, "a c d")
}

func TestAFailedCommitLeavesNothingAndAsksForReopen(t *testing.T) {
	full := errors.New("no space left on device")
	m := storage.NewMemory()
	put(t, m, false, "a")
	m.FailCommits(full)
	var b storage.Batch
	b.Put(storage.Messages, []byte("b"), nil)
	if err := m.Commit(&b, true); !errors.Is(err, full) {
		t.Fatalf("commit: %v", err)
	}
	wantKeys(t, m, "a")
	if err := m.Commit(&b, true); !errors.Is(err, storage.ErrReopen) {
		t.Errorf("the next commit: %v", err)
	}
	if err := m.Reopen(); !errors.Is(err, full) {
		t.Errorf("reopen while the disk is full: %v", err)
	}
	wantKeys(t, m, "a")
	m.FailCommits(nil)
	if err := m.Commit(&b, true); !errors.Is(err, storage.ErrReopen) {
		t.Errorf("commit before reopen: %v", err)
	}
	if err := m.Sync(); !errors.Is(err, storage.ErrReopen) {
		t.Errorf("sync before reopen: %v", err)
	}
	if err := m.Reopen(); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, m, "a")
	if err := m.Commit(&b, true); err != nil {
		t.Error(err)
	}
	wantKeys(t, m, "a b")
}

func TestAFailedSyncAsksForReopen(t *testing.T) {
	broken := errors.New("input/output error")
	m := storage.NewMemory()
	put(t, m, false, "a")
	m.FailCommits(broken)
	if err := m.Sync(); !errors.Is(err, broken) {
		t.Errorf("sync: %v", err)
	}
	m.FailCommits(nil)
	if err := m.Commit(&storage.Batch{}, false); !errors.Is(err, storage.ErrReopen) {
		t.Errorf("commit: %v", err)
	}
	wantKeys(t, m, "a")
	wantKeys(t, m.CloneSynced(), "")
}

func TestALateFailureIsFoundAfterReopen(t *testing.T) {
	broken := errors.New("input/output error")
	m := storage.NewMemory()
	m.FailCommitsLate(broken)
	var b storage.Batch
	b.Put(storage.Messages, []byte("a"), nil)
	if err := m.Commit(&b, true); !errors.Is(err, broken) {
		t.Fatalf("commit: %v", err)
	}
	b.Reset() // the store has its own copy
	wantKeys(t, m, "")
	m.FailCommits(nil)
	if err := m.Reopen(); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, m, "a")
}

func TestACheckpointThatIsDamagedIsRefused(t *testing.T) {
	m := storage.NewMemory()
	put(t, m, true, "a", "b")
	dir := filepath.Join(t.TempDir(), "copy")
	if err := m.Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "memory.batches")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, content []byte) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := storage.OpenCheckpoint(dir); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v, want %v", what, err, storage.ErrCorrupt)
		}
	}
	for n := range len(good) - 4 { // the checksum of nothing, at the very end, is not looked at
		check(fmt.Sprintf("cut after %d bytes", n), good[:n])
		bad := append([]byte(nil), good...)
		bad[n] ^= 0x10
		check(fmt.Sprintf("changed at %d", n), bad)
	}
}
