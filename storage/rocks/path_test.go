//go:build cgo

package rocks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The working directory of a service is seldom where its operator reads its log.
func TestErrorsNameTheAbsolutePath(t *testing.T) {
	for dir, path := range map[string]string{
		"/":         "./proc/fila", // where not even root can make a directory
		t.TempDir(): "nosuch/data",
	} {
		t.Chdir(dir)
		s, err := Open(Options{Path: path, Mode: Balanced})
		if err == nil {
			_ = s.Close()
			_ = os.RemoveAll(path)
			t.Fatalf("%s in %s was opened", path, dir)
		}
		want := filepath.Join(dir, path)
		if !strings.HasPrefix(err.Error(), "open store "+want+": ") {
			t.Errorf("%s in %s: %v", path, dir, err)
		}
	}
}
