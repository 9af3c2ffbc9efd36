//go:build !cgo

package broker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/storage/rocks"
)

func TestAStartWithoutCgoNamesBothWaysOut(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := cli.Load(cli.Input{Flags: map[string]string{"server.listen_addr": "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	err = serve(t.Context(), l.Config, zerolog.Nop(), nil)
	wantNoCgo(t, err)
	for _, way := range []string{"make build", "--storage.engine memory"} {
		if err == nil || !strings.Contains(err.Error(), way) {
			t.Errorf("%v does not name %s", err, way)
		}
	}
}

func TestCheckRepairAndRestoreWithoutCgoChangeNothing(t *testing.T) {
	dir := t.TempDir()
	store, fresh := filepath.Join(dir, "store"), filepath.Join(dir, "fresh")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	progress := func(string, int64) func(int64) { return func(int64) {} }
	_, checked := check(store, progress)
	_, repaired := repair(store, progress)
	_, restored := restore(store, fresh, progress)
	for _, err := range []error{checked, repaired, restored} {
		wantNoCgo(t, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

// wantNoCgo checks that an error is a usage error of one line about the missing RocksDB.
func wantNoCgo(t *testing.T, err error) {
	t.Helper()
	if _, usage := errors.AsType[cli.UsageError](err); !usage || !errors.Is(err, rocks.ErrNoCgo) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want a usage error of a binary without cgo", err)
	}
}
