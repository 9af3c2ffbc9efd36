package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/testkit"
)

// faultyFiles are files that fail on request. after is how many more changes succeed.
type faultyFiles struct {
	types.VFS

	mu      sync.Mutex
	err     error
	after   int
	changes int           // that were tried while err was set
	held    chan struct{} // not nil: a sync waits until it is closed
}

// hold makes every sync wait until release is called.
func (v *faultyFiles) hold() (release func()) {
	held := make(chan struct{})
	v.mu.Lock()
	v.held = held
	v.mu.Unlock()
	return sync.OnceFunc(func() {
		v.mu.Lock()
		v.held = nil
		v.mu.Unlock()
		close(held)
	})
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
	f.files.mu.Lock()
	held := f.files.held
	f.files.mu.Unlock()
	if held != nil {
		<-held
	}
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
		testkit.Eventually(t, "space", func() bool { return !l.Full() })
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
	testkit.Eventually(t, "space", func() bool { return !l.Full() })
	wantEntries(t, l, 3)
	if err := l.StoreLog(logEntry(4)); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, l, 4)
}

// Entries of one call are written one after the other if they are large. Where the disk is full in between,
// those that were written do not come back either.
func TestLargeEntriesAreRefusedTogether(t *testing.T) {
	large := func(first uint64, fill string) (all []*raft.Log) {
		for i := range uint64(4) {
			e := logEntry(first + i)
			e.Data = []byte(strings.Repeat(fill, writeBytes*2/3))
			all = append(all, e)
		}
		return all
	}
	for after := range 8 { // each write is two changes
		l, files, fatal := logOnFaults(t)
		for i := uint64(1); i <= 3; i++ {
			if err := l.StoreLog(logEntry(i)); err != nil {
				t.Fatal(err)
			}
		}
		files.fail(syscall.ENOSPC, after)
		err := l.StoreLogs(large(4, "r"))
		if err == nil && after < 7 || err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("after %d changes: %v", after, err)
		}
		files.fail(nil, 0)
		if err == nil {
			continue
		}
		testkit.Eventually(t, "space", func() bool { return !l.Full() })
		wantEntries(t, l, 3)
		if err := l.StoreLogs(large(4, "s")); err != nil {
			t.Fatalf("after %d changes: %v", after, err)
		}
		for i := uint64(4); i < 8; i++ {
			var e raft.Log
			if err := l.GetLog(i, &e); err != nil || e.Index != i || e.Data[0] != 's' || len(e.Data) != writeBytes*2/3 {
				t.Errorf("entry %d is %d of %d bytes, %v", i, e.Index, len(e.Data), err)
			}
		}
		if len(fatal) > 0 {
			t.Fatal(<-fatal)
		}
	}
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

// A file that is full ends with an index, and the next one is begun in the background. Whatever is missing
// of this after a crash, the log has all that was synced before, and goes on.
func TestTheLogGoesOnAfterACrashAtTheEndOfAFile(t *testing.T) {
	made, whole := t.TempDir(), t.TempDir()
	options := func(dir string) logOptions {
		return logOptions{Dir: dir, SegmentBytes: 4 << 10, Retry: time.Millisecond, Log: zerolog.Nop(), Fatal: func(err error) { t.Error(err) }}
	}
	l, err := openLog(options(made))
	if err != nil {
		t.Fatal(err)
	}
	first := tailOf(t, made)
	var meta []byte // as it was before the last append
	last, sizes := uint64(0), []int64{}
	for names := []string{first}; len(names) == 1; {
		if meta, err = os.ReadFile(filepath.Join(made, metadb.FileName)); err != nil {
			t.Fatal(err)
		}
		last++
		if err := l.StoreLog(logEntry(last)); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, endOf(t, first))
		if err := l.DeleteRange(1<<40, 1<<40); err != nil { // waits for the next file
			t.Fatal(err)
		}
		if names, err = filepath.Glob(filepath.Join(made, "*.wal")); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	for name, bytes := range map[string][]byte{filepath.Base(first): text, metadb.FileName: meta} {
		if err := os.WriteFile(filepath.Join(whole, name), bytes, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before, end := sizes[len(sizes)-2], sizes[len(sizes)-1]
	if end-before < 200 {
		t.Fatalf("the last append has %d bytes: it has no index", end-before)
	}
	for cut := before; cut <= end; cut += 8 {
		dir := filepath.Join(t.TempDir(), "log")
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		zeroFrom(t, dir, cut)
		kept := last
		if cut < end {
			kept-- // it was not synced
		}
		l, err := openLog(options(dir))
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, end, err)
		}
		if found, err := l.LastIndex(); err != nil || found != kept {
			t.Fatalf("cut at %d, between %d and %d: the last entry is %d, %v; want %d", cut, before, end, found, err, kept)
		}
		wantEntries(t, l, kept)
		for range 60 { // two more files
			kept++
			if err := l.StoreLog(logEntry(kept)); err != nil {
				t.Fatalf("cut at %d of %d: entry %d: %v", cut, end, kept, err)
			}
		}
		wantEntries(t, l, kept)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l, err = openLog(options(dir)); err != nil {
			t.Fatal(err)
		}
		wantEntries(t, l, kept)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What is left of an append that was torn is not there any more when the next one is made: it could make a
// torn one look like one that was synced.
func TestNothingIsLeftOfATornAppend(t *testing.T) {
	o := logOptions{Dir: t.TempDir(), SegmentBytes: 64 << 10, Retry: time.Millisecond, Log: zerolog.Nop(), Fatal: func(err error) { t.Error(err) }}
	l, err := openLog(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.StoreLog(logEntry(1)); err != nil {
		t.Fatal(err)
	}
	name := tailOf(t, o.Dir)
	whole := endOf(t, name)
	if err := l.StoreLogs([]*raft.Log{logEntry(2), logEntry(3), logEntry(4)}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text[whole+50] ^= 0xff // of entry 2
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err = openLog(o); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, l, 1)
	if end := endOf(t, name); end != whole {
		t.Errorf("the file has contents up to %d, entry 1 ends at %d", end, whole)
	}
	if err := l.StoreLog(logEntry(2)); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, l, 2)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// tailOf returns the only file of a log.
func tailOf(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(names) != 1 {
		t.Fatalf("the files of the log are %v, %v", names, err)
	}
	return names[0]
}

// endOf returns where the contents of a file that was allocated beforehand end.
func endOf(t *testing.T, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(bytes.TrimRight(text, "\x00"))+7) / 8 * 8
}

// zeroFrom takes what follows an offset.
func zeroFrom(t *testing.T, dir string, at int64) {
	t.Helper()
	name := tailOf(t, dir)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	clear(text[at:])
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
