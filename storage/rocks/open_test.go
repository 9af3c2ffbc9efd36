//go:build cgo

package rocks_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

func openAt(t *testing.T, dir string) *rocks.Store {
	t.Helper()
	s, err := rocks.Open(rocks.Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func newDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "store")
}

func put(t *testing.T, s *rocks.Store, f storage.Family, kv ...string) {
	t.Helper()
	var b storage.Batch
	for i := 0; i < len(kv); i += 2 {
		b.Put(f, []byte(kv[i]), []byte(kv[i+1]))
	}
	if err := s.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s *rocks.Store, key, value string) {
	t.Helper()
	if got, err := s.Get(storage.Messages, []byte(key)); err != nil || string(got) != value {
		t.Errorf("%q is %.40q, %v; want %.40q", key, got, err, value)
	}
}

// wantRefusal opens a store that must not open, and holds the message to one
// line that names the directory and says what is to be said.
func wantRefusal(t *testing.T, dir string, is error, says ...string) {
	t.Helper()
	s, err := rocks.Open(rocks.Options{Path: dir})
	if err == nil {
		_ = s.Close() // the test fails anyway
		t.Fatalf("%s opens", dir)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%v, want %v", err, is)
	}
	for _, text := range append(says, dir) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []rocks.Options{{Mode: "fast"}, {BlockCacheBytes: 8<<20 - 1}, {BlockCacheBytes: -1}, {Memtable: "hash"}} {
		o.Path = newDir(t)
		if s, err := rocks.Open(o); err == nil {
			t.Errorf("%+v opens: %v", o, s.Close())
		}
		if _, err := os.Stat(o.Path); !os.IsNotExist(err) {
			t.Errorf("%+v left something behind: %v", o, err)
		}
	}
	s, err := rocks.Open(rocks.Options{Path: newDir(t), BlockCacheBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats()
	if err != nil || st.CacheMaxBytes != 8<<20 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestADirectoryThatCannotHoldAStoreIsRefused(t *testing.T) {
	wantRefusal(t, filepath.Join(t.TempDir(), "missing", "store"), nil, "does not exist")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, file, nil, "is not a directory")
	wantRefusal(t, filepath.Join(file, "store"), nil, "is not a directory")
}

func TestAStoreHasOneOwner(t *testing.T) {
	dir := newDir(t)
	s := openAt(t, dir)
	put(t, s, storage.Messages, "a", "1")
	wantRefusal(t, dir, storage.ErrLocked, "in use by another fila process")
	if out := runChild(t, "open", dir); !strings.Contains(out, "in use by another fila process") {
		t.Errorf("another process says %q", out)
	}
	want(t, s, "a", "1")
	put(t, s, storage.Messages, "b", "1")
}

func TestANewerFormatIsRefused(t *testing.T) {
	dir := newDir(t)
	s := openAt(t, dir)
	put(t, s, storage.Default, "format", "7")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, dir, storage.ErrFormat, "format 7", "up to 2")
}

// makeWith makes a database as another version of Fila would.
func makeWith(t *testing.T, dir string, families []string, format string) {
	t.Helper()
	o := grocksdb.NewDefaultOptions()
	defer o.Destroy()
	o.SetCreateIfMissing(true)
	o.SetCreateIfMissingColumnFamilies(true)
	var options []*grocksdb.Options
	for range families {
		options = append(options, o)
	}
	db, handles, err := grocksdb.OpenDbColumnFamilies(o, dir, families, options)
	if err != nil {
		t.Fatal(err)
	}
	w := grocksdb.NewDefaultWriteOptions()
	defer w.Destroy()
	if format != "" {
		if err := db.Put(w, []byte("format"), []byte(format)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.PutCF(w, handles[len(handles)-1], []byte("a"), []byte("1")); err != nil {
		t.Fatal(err)
	}
	for _, h := range handles {
		h.Destroy()
	}
	db.Close()
}

func TestFamiliesOfANewerFilaAreRefused(t *testing.T) {
	dir := newDir(t)
	makeWith(t, dir, []string{"default", "messages", "holograms"}, "7")
	wantRefusal(t, dir, storage.ErrFormat, "format 7", "up to 2")
	dir = newDir(t)
	makeWith(t, dir, []string{"default", "messages", "holograms"}, "1")
	wantRefusal(t, dir, storage.ErrFormat, "holograms")
}

func TestFamiliesThatAnOlderFilaLacksAreAdded(t *testing.T) {
	dir := newDir(t)
	makeWith(t, dir, []string{"default", "messages"}, "1")
	s := openAt(t, dir)
	want(t, s, "a", "1")
	for _, f := range storage.Families()[1:] {
		put(t, s, f, "b", f.String())
	}
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	for _, f := range storage.Families()[1:] {
		if got, err := s.Get(f, []byte("b")); err != nil || string(got) != f.String() {
			t.Errorf("%s: %q, %v", f, got, err)
		}
	}
}

func TestFamiliesOutOfOrderAreRefused(t *testing.T) {
	dir := newDir(t)
	makeWith(t, dir, []string{"default", "leases", "messages"}, "1")
	wantRefusal(t, dir, storage.ErrCorrupt, "family messages has the id 2 instead of 1")
}

func TestDataWithoutAVersionIsRefused(t *testing.T) {
	dir := newDir(t)
	makeWith(t, dir, []string{"default", "messages"}, "")
	wantRefusal(t, dir, storage.ErrCorrupt, "no format version")
}

// A crash while a store is made leaves families, or not even these.
func TestAStoreThatWasHalfMadeIsMade(t *testing.T) {
	dir := newDir(t)
	o := grocksdb.NewDefaultOptions()
	defer o.Destroy()
	o.SetCreateIfMissing(true)
	db, err := grocksdb.OpenDb(o, dir)
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	s := openAt(t, dir)
	if v, err := s.Get(storage.Default, []byte("format")); err != nil || string(v) != "1" {
		t.Errorf("format %q, %v", v, err)
	}

	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "MANIFEST-000001"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	openAt(t, dir)
}

func TestWhatAProbeLeftBehindIsRemoved(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "fila-probe-123")
	if err := os.WriteFile(stale, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	openAt(t, dir)
	left, err := filepath.Glob(filepath.Join(dir, "fila-probe-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestADirectoryThatMayNotBeWrittenToIsRefused(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "store")
	s := openAt(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The directory of the test is closed to others as well.
	for path, mode := range map[string]os.FileMode{dir: 0o555, parent: 0o555, filepath.Dir(parent): 0o755} {
		if err := os.Chmod(path, mode); err != nil { //nolint:gosec // another user must get in
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // so that they can be removed
		for _, path := range []string{parent, dir} {
			if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a directory
				t.Error(err)
			}
		}
	})
	if out := runChildAsNobody(t, "open", dir); !strings.Contains(out, "cannot be written to: permission denied") ||
		!strings.Contains(out, dir) {
		t.Errorf("an existing store: %q", out)
	}
	if out := runChildAsNobody(t, "open", filepath.Join(parent, "new")); !strings.Contains(out, "cannot be created: permission denied") {
		t.Errorf("a new store: %q", out)
	}
}

// A store may keep fewer tables open than its mode does, never more.
func TestTheNumberOfOpenTablesIsTheLesser(t *testing.T) {
	for mode, own := range map[rocks.Mode]int{"": 1000, rocks.Balanced: 1000, rocks.LowSpace: 256, rocks.HighThroughput: 4000, "fast": 0} {
		if got := rocks.OpenFiles(mode); got != own {
			t.Errorf("mode %q keeps %d tables open, want %d", mode, got, own)
		}
	}
	for files, want := range map[int]int{0: 256, 20: 20, 1 << 20: 256} {
		dir := t.TempDir()
		s, err := rocks.Open(rocks.Options{Path: dir, Mode: rocks.LowSpace, OpenFiles: files})
		if err != nil {
			t.Fatalf("with %d tables: %v", files, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		written, err := filepath.Glob(filepath.Join(dir, "OPTIONS-*")) // RocksDB's own
		if err != nil || len(written) == 0 {
			t.Fatalf("%v, %v", written, err)
		}
		text, err := os.ReadFile(written[len(written)-1])
		if err != nil {
			t.Fatal(err)
		}
		if line := fmt.Sprintf("\n  max_open_files=%d\n", want); !strings.Contains(string(text), line) {
			t.Errorf("asked for %d tables, it does not keep %d open", files, want)
		}
	}
}

// A new store is made in a directory of its own. What lies beside an existing one does not matter.
func TestANewStoreIsNotMadeAmongFilesOfSomethingElse(t *testing.T) {
	for names, want := range map[string]string{
		"letter.txt": "letter.txt: not files of a store", "app.log other": "app.log and 1 more", "lost+found .snapshot fila.toml LOCK": "",
	} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(names) {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := rocks.Open(rocks.Options{Path: dir})
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, storage.ErrForeign) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", names, err)
		}
		if err != nil {
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != len(strings.Fields(names)) {
				t.Errorf("%s: a refused start has left %v", names, left)
			}
			continue
		}
		if err := errors.Join(s.Close(), os.WriteFile(filepath.Join(dir, "letter.txt"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if s, err = rocks.Open(rocks.Options{Path: dir}); err != nil {
			t.Errorf("an existing store: %v", err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
