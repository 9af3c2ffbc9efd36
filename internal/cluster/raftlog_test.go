package cluster

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
	"github.com/rs/zerolog"
)

// faultyFiles are files that fail on request. after is how many more changes succeed.
type faultyFiles struct {
	types.VFS

	mu      sync.Mutex
	err     error
	after   int
	changes int // that were tried while err was set
}

func (v *faultyFiles) fail(err error, after int) {
	v.mu.Lock()
	v.err, v.after, v.changes = err, after, 0
	v.mu.Unlock()
}

func (v *faultyFiles) tried() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changes
}

func (v *faultyFiles) change() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil {
		return nil
	}
	v.changes++
	if v.after > 0 {
		v.after--
		return nil
	}
	return v.err
}

func (v *faultyFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if err := v.change(); err != nil {
		return nil, err
	}
	f, err := v.VFS.Create(dir, name, size)
	return faultyFile{f, v}, err
}

func (v *faultyFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return faultyFile{f, v}, nil
}

type faultyFile struct {
	types.WritableFile

	files *faultyFiles
}

func (f faultyFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.files.change(); err != nil {
		return 0, err
	}
	return f.WritableFile.WriteAt(p, at)
}

func (f faultyFile) Sync() error {
	if err := f.files.change(); err != nil {
		return err
	}
	return f.WritableFile.Sync()
}

// logOnFaults opens a log with small segments, and returns what Fatal was called with.
func logOnFaults(t *testing.T) (l *raftLog, files *faultyFiles, fatal chan error) {
	t.Helper()
	files, fatal = &faultyFiles{VFS: fs.New()}, make(chan error, 10)
	l, err := openLog(logOptions{
		Dir: t.TempDir(), SegmentBytes: 4 << 10, Retry: time.Millisecond, Files: files, Log: zerolog.Nop(),
		Fatal: func(err error) { fatal <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, files, fatal
}

func logEntry(i uint64) *raft.Log {
	return &raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: fmt.Appendf(nil, "entry %d %0100d", i, i)}
}

// wantEntries fails unless the log has the entries 1 to last and no other.
func wantEntries(t *testing.T, l *raftLog, last uint64) {
	t.Helper()
	if found, err := l.LastIndex(); err != nil || found != last {
		t.Fatalf("the last entry is %d, %v; want %d", found, err, last)
	}
	for i := uint64(1); i <= last; i++ {
		var got raft.Log
		if err := l.GetLog(i, &got); err != nil || string(got.Data) != string(logEntry(i).Data) {
			t.Fatalf("entry %d is %q, %v", i, got.Data, err)
		}
	}
}

// until polls a condition that another goroutine brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: " + what)
		}
	}
}

// A full disk may show at any change of a file: in the middle of an append, when it is synced, or when
// a segment is full and the next one is made in the background.
func TestTheLogGoesOnAfterAFullDiskWhereverItShows(t *testing.T) {
	for after := range 12 {
		l, files, fatal := logOnFaults(t)
		last := uint64(0)
		for ; last < 25; last++ { // close to the end of a segment
			if err := l.StoreLog(logEntry(last + 1)); err != nil {
				t.Fatal(err)
			}
		}
		files.fail(syscall.ENOSPC, after)
		for {
			err := l.StoreLog(logEntry(last + 1))
			if err == nil {
				last++
				continue
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("after %d changes: %v", after, err)
			}
			break
		}
		wantEntries(t, l, last)
		if !l.Full() {
			t.Fatal("the log does not say that the disk is full")
		}
		files.fail(nil, 0)
		until(t, "space", func() bool { return !l.Full() })
		wantEntries(t, l, last)
		for range 100 {
			last++
			if err := l.StoreLog(logEntry(last)); err != nil {
				t.Fatal(err)
			}
		}
		wantEntries(t, l, last)
		if len(fatal) > 0 {
			t.Fatal(<-fatal)
		}
	}
}

// The library keeps an append that was written and not synced: reopened, it would be back, and Raft's
// next entry of that index could not be appended.
func TestAnEntryThatWasRefusedDoesNotComeBack(t *testing.T) {
	l, files, _ := logOnFaults(t)
	for i := uint64(1); i <= 3; i++ {
		if err := l.StoreLog(logEntry(i)); err != nil {
			t.Fatal(err)
		}
	}
	files.fail(syscall.ENOSPC, 1) // the write succeeds, the sync does not
	other := logEntry(4)
	other.Data = []byte("refused")
	if err := l.StoreLog(other); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	files.fail(nil, 0)
	until(t, "space", func() bool { return !l.Full() })
	wantEntries(t, l, 3)
	if err := l.StoreLog(logEntry(4)); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, l, 4)
}

func TestAnErrorThatIsNotAboutSpaceEndsTheLogForGood(t *testing.T) {
	for after := range 12 {
		l, files, fatal := logOnFaults(t)
		last := uint64(0)
		for ; last < 25; last++ {
			if err := l.StoreLog(logEntry(last + 1)); err != nil {
				t.Fatal(err)
			}
		}
		files.fail(syscall.EIO, after)
		var err error
		for ; err == nil; last++ {
			err = l.StoreLog(logEntry(last + 1))
		}
		if !errors.Is(err, syscall.EIO) || !errors.Is(<-fatal, syscall.EIO) {
			t.Fatalf("after %d changes: %v", after, err)
		}
		files.fail(nil, 0)
		files.fail(syscall.EIO, 1<<30) // counts, and would let all succeed
		if err := l.StoreLog(logEntry(last)); !errors.Is(err, syscall.EIO) {
			t.Errorf("an append after it: %v", err)
		}
		if _, err := l.LastIndex(); !errors.Is(err, syscall.EIO) {
			t.Errorf("a read after it: %v", err)
		}
		if n := files.tried(); n > 0 || len(fatal) > 0 {
			t.Errorf("after the error there were %d changes of files and %d more calls of Fatal", n, len(fatal))
		}
	}
}

func TestATermWaitsUntilItIsWritten(t *testing.T) {
	l, files, _ := logOnFaults(t)
	if err := l.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		t.Fatal(err)
	}
	files.fail(syscall.ENOSPC, 0)
	if err := l.StoreLog(logEntry(1)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- l.SetUint64([]byte("CurrentTerm"), 2) }()
	select {
	case err := <-done:
		t.Fatalf("a term is set on a full disk: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if v, err := l.GetUint64([]byte("CurrentTerm")); v != 1 || err != nil {
		t.Errorf("the term is %d, %v before it is written", v, err)
	}
	files.fail(nil, 0)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if v, err := l.GetUint64([]byte("CurrentTerm")); v != 2 || err != nil {
		t.Errorf("the term is %d, %v", v, err)
	}
}
