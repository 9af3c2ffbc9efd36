//go:build !cgo

package rocks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutCgoNothingIsOpenedAndTheErrorSaysWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	_, opened := Open(Options{Path: path})
	_, inspected := Inspect(path)
	for _, err := range []error{opened, inspected} {
		if !errors.Is(err, ErrNoCgo) || !strings.Contains(err.Error(), "make build") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the store was touched: %v", err)
	}
	if Version() != "" || OpenFiles(Balanced) != 0 {
		t.Errorf("version %q, %d files", Version(), OpenFiles(Balanced))
	}
}
