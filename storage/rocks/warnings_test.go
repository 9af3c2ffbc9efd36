//go:build cgo

package rocks_test

import (
	"bytes"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/storage/rocks"
)

// RocksDB's log is on the disk that is full, and a line that does not fit there must
// not end the process.
func TestALogWithoutSpaceIsBorne(t *testing.T) {
	if !alone(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
	t.Cleanup(func() { limitFiles(t, math.MaxUint64) })
	dir := filled(t, false)
	limitFiles(t, 100) // enough for the probe before
	for range 3 {
		s := openAt(t, dir)
		want(t, s, "key99", strings.Repeat("value99", 10))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	limitFiles(t, math.MaxUint64)
	want(t, openAt(t, dir), "key99", strings.Repeat("value99", 10))
}

func TestRocksDBsLogIsBesideTheDataAndBounded(t *testing.T) {
	if _, err := os.Stat(filepath.Join(filled(t, false), "LOG")); !os.IsNotExist(err) {
		t.Errorf("a store that was well has a log: %v", err)
	}
	dir := filled(t, false)
	name := filepath.Join(dir, "LOG")
	long := bytes.Repeat([]byte("x"), 1<<20+1)
	if err := os.WriteFile(name, long, 0o600); err != nil {
		t.Fatal(err)
	}
	change(t, largest(t, dir, "*.log"), flipMiddle)
	for range 2 {
		i, err := rocks.Inspect(dir) // RocksDB warns of what it passes over
		if err != nil {
			t.Fatal(err)
		}
		i.Close()
	}
	var all []byte
	for _, file := range []string{name + ".old", name} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > len(long)+4096 {
			t.Errorf("%s has %d bytes", file, len(b))
		}
		all = append(all, b...)
	}
	if text := strings.TrimLeft(string(all), "x"); !strings.Contains(text, "dropping") {
		t.Errorf("the log says %.1000q", text)
	}
}
