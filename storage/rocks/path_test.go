//go:build cgo

package rocks

import (
	"errors"
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

// A store that is being opened removes the probes that it finds, also one that another goroutine is writing.
func TestAProbeMayBeRemovedByAnOpen(t *testing.T) {
	dir := t.TempDir()
	done := make(chan error, 1)
	go func() {
		var err error
		for range 300 {
			err = errors.Join(err, probe(dir, 1))
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			removeProbes(dir)
		}
	}
}
