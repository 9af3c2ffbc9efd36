//go:build cgo

package rocks_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/faisca/fila/storage"
)

// A key that is put over an older value is removed by a delete. A single delete does not remove it, also
// where a delete precedes the second put in its batch: a flush drops the delete, which the put hides, and
// then the put together with the single delete, so that the value of an older table is back.
func TestAKeyThatWasPutTwiceIsRemovedByADeleteAlone(t *testing.T) {
	again := func(b *storage.Batch, key []byte) { b.Put(storage.Messages, key, []byte("new")) }
	for _, x := range []struct {
		name          string
		write, remove func(b *storage.Batch, key []byte)
		returns       bool
	}{
		{"a put and a delete", again, func(b *storage.Batch, key []byte) { b.Delete(storage.Messages, key) }, false},
		{"a delete with a put, and a single delete", func(b *storage.Batch, key []byte) {
			b.Delete(storage.Messages, key)
			again(b, key)
		}, func(b *storage.Batch, key []byte) { b.SingleDelete(storage.Messages, key) }, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, key := openAt(t, newDir(t)), []byte("key")
			commit := func(change func(b *storage.Batch, key []byte)) {
				t.Helper()
				var b storage.Batch
				change(&b, key)
				if err := s.Commit(&b, false); err != nil {
					t.Fatal(err)
				}
			}
			flushes := 0
			flush := func() {
				t.Helper()
				flushes++
				if err := s.Checkpoint(filepath.Join(t.TempDir(), fmt.Sprint(flushes))); err != nil {
					t.Fatal(err)
				}
			}
			commit(func(b *storage.Batch, key []byte) { b.Put(storage.Messages, key, []byte("old")) })
			flush()
			commit(x.write)
			commit(x.remove)
			flush()
			switch value, err := s.Get(storage.Messages, key); {
			case x.returns && err == nil && string(value) == "old":
			case !x.returns && errors.Is(err, storage.ErrNotFound):
			default:
				t.Errorf("after the removal the key has %q: %v", value, err)
			}
		})
	}
}
