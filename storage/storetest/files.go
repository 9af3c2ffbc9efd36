package storetest

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// CopyFiles copies the files of a store to a directory that is empty or missing. A store that is open
// deletes files while they are copied, so that the copy begins again when one has gone.
func CopyFiles(t *testing.T, to, from string) {
	t.Helper()
	for {
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil {
			return
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
}
