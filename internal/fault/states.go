//go:build fault

package fault

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/storage"
)

// goOn is the file, in the working directory of the broker, that ends the first look into a slow store.
const goOn = "go-on"

// slowStore does not end the first scan, which is that of the recovery, before the file goOn is there.
type slowStore struct {
	Store

	first sync.Once
}

func (s *slowStore) Scan(f storage.Family, from, to []byte) storage.Iterator {
	s.first.Do(func() {
		for _, err := os.Stat(goOn); err != nil; _, err = os.Stat(goOn) {
			<-time.After(10 * time.Millisecond)
		}
	})
	return s.Store.Scan(f, from, to)
}

// markedQueue is the name of the queue whose creation makes a store fail.
const markedQueue = "fail-from-here"

// stuckFor is how long a scan hangs: longer than any test.
const stuckFor = time.Hour

var errPlanted = errors.New("a planted fault")

// failingStore fails the commit that creates markedQueue, and every one after it. If it
// hangs, so does every scan from then on, for stuckFor: that of the recovery, in the engine's loop.
type failingStore struct {
	Store

	hangs  bool
	failed atomic.Bool
}

func (s *failingStore) Commit(b *storage.Batch, sync bool) error {
	_ = b.Each(func(r storage.Record) error { // fails only where its function does
		if bytes.Contains(r.Key, []byte(markedQueue)) || bytes.Contains(r.Value, []byte(markedQueue)) {
			s.failed.Store(true)
		}
		return nil
	})
	if s.failed.Load() {
		return errPlanted
	}
	return s.Store.Commit(b, sync)
}

func (s *failingStore) Reopen() error {
	if s.failed.Load() {
		return errPlanted
	}
	return s.Store.Reopen()
}

func (s *failingStore) Scan(f storage.Family, from, to []byte) storage.Iterator {
	if s.hangs && s.failed.Load() {
		<-time.After(stuckFor)
	}
	return s.Store.Scan(f, from, to)
}
