//go:build cgo

package rocks_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
	"github.com/faisca/fila/storage/rocks/files"
	"github.com/faisca/fila/storage/storetest"
)

// severalLogs makes a store with messages in three logs, none of them in tables yet, and
// returns the logs.
func severalLogs(t *testing.T) (dir string, logs []string) {
	t.Helper()
	dir = newDir(t)
	s := openAt(t, dir)
	for i := range 1200 { // a memtable takes some 400, and a flush eight of these
		put(t, s, storage.Messages, fmt.Sprintf("key%04d", i), strings.Repeat(fmt.Sprint(i), 2500))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) < 3 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	return dir, logs
}

// wantFound wants a start to be refused, and an inspection to find the damage, both with
// the name of the file.
func wantFound(t *testing.T, dir, file string) {
	t.Helper()
	wantRefusal(t, dir, storage.ErrCorrupt, file)
	i, err := rocks.Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if !slices.ContainsFunc(i.Damage, func(d rocks.Damage) bool { return strings.Contains(d.File+d.What, file) }) || !i.Fatal {
		t.Errorf("the inspection does not name %s: %+v", file, i.Damage)
	}
}

func TestAMissingLogIsFound(t *testing.T) {
	origin, logs := severalLogs(t)
	for _, log := range logs {
		t.Run(filepath.Base(log), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			storetest.CopyFiles(t, dir, origin)
			if err := os.Remove(filepath.Join(dir, filepath.Base(log))); err != nil {
				t.Fatal(err)
			}
			wantFound(t, dir, filepath.Base(log))
		})
	}
}

// A log that is cut between two records looks whole: what is missing is seen from the one
// behind it.
func TestALogThatWasCutIsFoundByTheNextOne(t *testing.T) {
	dir, logs := severalLogs(t)
	change(t, logs[0], func(b []byte) []byte { return b[:cutAfter(t, logs[0], 0.5)] })
	wantFound(t, dir, filepath.Base(logs[0]))
}

// What is missing at the beginning of a log that is damaged there was in this log: the one before it was
// synced before this one began. A node cuts its newest log off at such damage.
func TestDamageAtTheBeginningOfALogNamesIt(t *testing.T) {
	t.Parallel()
	origin, logs := severalLogs(t)
	newest := filepath.Base(logs[len(logs)-1])
	for name, damage := range map[string]func([]byte) []byte{
		"zeros":          func(b []byte) []byte { clear(b[:len(b)/2]); return b },
		"a changed byte": func(b []byte) []byte { b[100] ^= 0xff; return b },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			storetest.CopyFiles(t, dir, origin)
			change(t, filepath.Join(dir, newest), damage)
			wantFound(t, dir, newest)
			s, err := rocks.Open(rocks.Options{Path: dir, Replica: true})
			if err != nil {
				t.Fatal(err)
			}
			want(t, s, "key0000", strings.Repeat("0", 2500))
			if has(t, s, storage.Messages, []byte("key1199")) {
				t.Error("what lies behind the damage is there")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// cutAfter is where the record ends that is at a part of a file.
func cutAfter(t *testing.T, path string, part float64) (at int64) {
	t.Helper()
	var begins []int64
	if _, err := files.ReadLog(path, func(at int64, _ []byte) error { begins = append(begins, at); return nil }); err != nil {
		t.Fatal(err)
	}
	return begins[int(float64(len(begins))*part)]
}

func TestDamageAtTheEndOfALogNamesIt(t *testing.T) {
	dir := filled(t, false)
	log := largest(t, dir, "*.log")
	change(t, log, func(b []byte) []byte { b[len(b)-5] ^= 0xff; return b })
	wantFound(t, dir, filepath.Base(log))
}

// TestAManifestThatWasCutIsFound cuts a MANIFEST between all of its records, one after the
// other: it is found, or what is left leads to everything that there is.
func TestAManifestThatWasCutIsFound(t *testing.T) {
	t.Parallel()
	origin, left := mixed(t, rocks.Balanced)
	s := openAt(t, origin) // the second MANIFEST begins with all that the first had
	put(t, s, storage.Messages, "last", "1")
	left["last"] = "1"
	if err := errors.Join(s.Checkpoint(filepath.Join(t.TempDir(), "copy")), s.Close()); err != nil {
		t.Fatal(err)
	}
	manifest := largest(t, origin, "MANIFEST-*")
	var ends []int64
	if _, err := files.ReadLog(manifest, func(at int64, _ []byte) error { ends = append(ends, at); return nil }); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, at := range ends {
		dir := filepath.Join(t.TempDir(), "store")
		storetest.CopyFiles(t, dir, origin)
		change(t, filepath.Join(dir, filepath.Base(manifest)), func(b []byte) []byte { return b[:at] })
		s, err := rocks.Open(rocks.Options{Path: dir})
		if errors.Is(err, storage.ErrCorrupt) && strings.Contains(err.Error(), filepath.Base(manifest)) {
			found++
			if got, done := rebuilt(t, dir); len(got) != len(left) {
				t.Errorf("cut at %d: %d records are left of %d: %+v", at, len(got), len(left), done)
			}
			continue
		}
		if err != nil {
			t.Errorf("cut at %d: %v", at, err)
			continue
		}
		if n := count(t, s); n != len(left) {
			t.Errorf("cut at %d: %d records are left of %d, and nothing was said", at, n, len(left))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if found < len(ends)/2 {
		t.Errorf("%d of %d cuts were found", found, len(ends))
	}
}

// The list of logs is bounded, and one that was not written to its end says nothing.
func TestTheListOfLogsIsBounded(t *testing.T) {
	dir := filled(t, false)
	list := filepath.Join(dir, "fila-logs")
	names := func() int {
		b, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "\n") - 1
	}
	for n := range 1500 { // logs that are long gone, as RocksDB would remove them
		if err := os.WriteFile(filepath.Join(dir, files.LogName(uint64(n+1_000_000))), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := openAt(t, dir)
	if n := names(); n > 1000 || n < 1 {
		t.Errorf("%d logs are listed", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, list, func(b []byte) []byte { b[len(b)-3] = '7'; return b })
	s = openAt(t, dir)
	if n := names(); n > 3 {
		t.Errorf("%d logs are listed after a damage of the list", n)
	}
	_ = s.Close() // it was only opened
}

// RocksDB ends the process over a footer that names no checksum, or leads elsewhere. It is
// never asked to read such a table.
func TestATableWhoseFooterLeadsNowhereIsNotOpened(t *testing.T) {
	t.Parallel()
	origin := filled(t, true)
	table := largest(t, origin, "*.sst")
	const footer = 53
	for at := range footer {
		dir := filepath.Join(t.TempDir(), "store")
		storetest.CopyFiles(t, dir, origin)
		name := filepath.Base(table)
		changed := false
		change(t, filepath.Join(dir, name), func(b []byte) []byte {
			p := &b[len(b)-footer+at]
			changed = *p != 0
			*p = 0
			return b
		})
		if changed {
			wantFound(t, dir, name)
			if got, _ := rebuilt(t, dir); len(got) != 100 {
				t.Errorf("byte %d of the footer: %d records of 100 are left", at, len(got))
			}
		}
	}
}
