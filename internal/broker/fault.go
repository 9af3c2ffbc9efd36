//go:build fault

package broker

import (
	"bytes"
	"os"
	"sync"
	"time"

	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/storage"
)

// A broker built with the tag fault breaks one promise, named by PLANTED_FAULT, so
// that the torture can be seen to find it. Nothing of this is in any other binary.
const (
	replyBeforeCommit = "reply-before-commit"
	unsyncedReply     = "unsynced-reply"
	droppedAck        = "dropped-ack"
	unfencedReceipt   = "unfenced-receipt"
	lostTimer         = "lost-timer"
	lostLease         = "lost-lease"
)

func planted() string { return os.Getenv("PLANTED_FAULT") }

// faultyStore breaks what the engine relies on.
func faultyStore(s store) store {
	switch planted() {
	case replyBeforeCommit:
		late := &lateStore{store: s}
		go late.writeSometimes()
		return late
	case unsyncedReply, droppedAck, lostTimer, lostLease:
		return &faulty{store: s, fault: planted()}
	}
	return s
}

// faulty changes what passes through it.
type faulty struct {
	store
	fault string
	acks  int
}

func (f *faulty) Commit(b *storage.Batch, sync bool) error {
	switch f.fault {
	case unsyncedReply:
		return f.store.Commit(b, false)
	case droppedAck:
		b = without(b, func(r storage.Record) bool {
			if r.Op != storage.OpSingleDelete || r.Family != storage.Messages {
				return false
			}
			f.acks++
			return f.acks%50 == 0
		})
	case lostLease:
		b = without(b, func(r storage.Record) bool { return r.Family == storage.Leases })
	}
	return f.store.Commit(b, sync)
}

// Scan forgets who waits for a time.
func (f *faulty) Scan(family storage.Family, from, to []byte) storage.Iterator {
	if f.fault == lostTimer && family == storage.Scheduled {
		from = bytes.Repeat([]byte{0xff}, 64)
	}
	return f.store.Scan(family, from, to)
}

// without is a batch less some records.
func without(b *storage.Batch, drop func(r storage.Record) bool) *storage.Batch {
	var out storage.Batch
	_ = b.Each(func(r storage.Record) error {
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

// lateStore says that a batch is written, and writes it when it is read or some time
// has passed.
type lateStore struct {
	store
	mu      sync.Mutex
	pending []*storage.Batch
}

func (l *lateStore) Commit(b *storage.Batch, _ bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, without(b, func(storage.Record) bool { return false }))
	return nil
}

func (l *lateStore) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.pending {
		_ = l.store.Commit(b, true)
	}
	l.pending = nil
}

func (l *lateStore) writeSometimes() {
	for {
		<-time.After(100 * time.Millisecond)
		l.write()
	}
}

func (l *lateStore) Get(f storage.Family, key []byte) ([]byte, error) {
	l.write()
	return l.store.Get(f, key)
}

func (l *lateStore) Scan(f storage.Family, from, to []byte) storage.Iterator {
	l.write()
	return l.store.Scan(f, from, to)
}

func (l *lateStore) Sync() error {
	l.write()
	return l.store.Sync()
}

// faultySession lets an ack end whatever lease there is: its delivery number is lost
// on the way.
func faultySession(s resp.Session) resp.Session {
	if planted() == unfencedReceipt {
		return unfenced{s}
	}
	return s
}

type unfenced struct{ resp.Session }

func (u unfenced) Handle(cmds []resp.Command) {
	for _, c := range cmds {
		if len(c.Args) < 3 || !bytes.EqualFold(c.Args[0], []byte("FILA.ACK")) {
			continue
		}
		for i := range c.Args[2:] {
			c.Args[2+i], _, _ = bytes.Cut(c.Args[2+i], []byte(":"))
		}
	}
	u.Session.Handle(cmds)
}
