//go:build fault

package fault

import (
	"bytes"
	"sync"
	"time"

	"github.com/faisca/fila/storage"
)

// lateAfter is the maximum delay between the acknowledgement of a commit and its write.
const lateAfter = 100 * time.Millisecond

// lateStore acknowledges a commit immediately and writes it before the next read or sync, or after
// lateAfter. A crash in between loses it.
type lateStore struct {
	Store

	mu      sync.Mutex
	pending []*storage.Batch
}

func (l *lateStore) Commit(b *storage.Batch, _ bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		time.AfterFunc(lateAfter, l.write)
	}
	l.pending = append(l.pending, without(b, func(storage.Record) bool { return false })) // b is reused by the caller
	return nil
}

func (l *lateStore) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.pending {
		_ = l.Store.Commit(b, true) // the client already has its reply
	}
	l.pending = nil
}

func (l *lateStore) Get(f storage.Family, key []byte) ([]byte, error) {
	l.write()
	return l.Store.Get(f, key)
}

func (l *lateStore) Scan(f storage.Family, from, to []byte) storage.Iterator {
	l.write()
	return l.Store.Scan(f, from, to)
}

func (l *lateStore) Sync() error {
	l.write()
	return l.Store.Sync()
}

// unsyncedStore never syncs a commit.
type unsyncedStore struct{ Store }

func (u unsyncedStore) Commit(b *storage.Batch, _ bool) error { return u.Store.Commit(b, false) }

// forgetfulStore drops records from commits.
type forgetfulStore struct {
	Store

	drop func(r storage.Record) bool
}

func (f *forgetfulStore) Commit(b *storage.Batch, sync bool) error {
	return f.Store.Commit(without(b, f.drop), sync)
}

// everyAck drops the deletion of every n-th message.
func everyAck(n int) func(r storage.Record) bool {
	acks := 0
	return func(r storage.Record) bool {
		if r.Op != storage.OpSingleDelete || r.Family != storage.Messages {
			return false
		}
		acks++
		return acks%n == 0
	}
}

// everyCopy drops every n-th message whose record is that of the message before it, as a publish stores
// them.
func everyCopy(n int) func(r storage.Record) bool {
	var last []byte
	copies := 0
	return func(r storage.Record) bool {
		if r.Op != storage.OpPut || r.Family != storage.Messages {
			return false
		}
		same := bytes.Equal(r.Value, last)
		last = append(last[:0], r.Value...)
		if same {
			copies++
		}
		return same && copies%n == 0
	}
}

// everyResult drops every n-th result of an ack.
func everyResult(n int) func(r storage.Record) bool {
	results := 0
	return func(r storage.Record) bool {
		if r.Op != storage.OpPut || r.Family != storage.Results {
			return false
		}
		results++
		return results%n == 0
	}
}

// leases drops every record of a lease.
func leases(r storage.Record) bool { return r.Family == storage.Leases }

// timelessStore finds no delayed messages.
type timelessStore struct{ Store }

func (t timelessStore) Scan(f storage.Family, from, to []byte) storage.Iterator {
	if f == storage.Scheduled {
		from = bytes.Repeat([]byte{0xff}, 64)
	}
	return t.Store.Scan(f, from, to)
}

// without returns a copy of a batch without the records that drop selects.
func without(b *storage.Batch, drop func(r storage.Record) bool) *storage.Batch {
	var out storage.Batch
	_ = b.Each(func(r storage.Record) error { // fails only if its function does
		switch {
		case drop(r):
		case r.Op == storage.OpPut:
			out.Put(r.Family, r.Key, r.Value)
		case r.Op == storage.OpDelete:
			out.Delete(r.Family, r.Key)
		case r.Op == storage.OpSingleDelete:
			out.SingleDelete(r.Family, r.Key)
		case r.Op == storage.OpDeleteRange:
			out.DeleteRange(r.Family, r.Key, r.Value)
		}
		return nil
	})
	return &out
}
