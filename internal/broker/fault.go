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

// A broker built with the tag fault breaks one promise, named by PLANTED_FAULT. The torture
// tests must detect each of these faults. No other binary contains this file.
const (
	replyBeforeCommit = "reply-before-commit"
	unsyncedReply     = "unsynced-reply"
	droppedAck        = "dropped-ack"
	unfencedReceipt   = "unfenced-receipt"
	lostTimer         = "lost-timer"
	lostLease         = "lost-lease"
)

func planted() string { return os.Getenv("PLANTED_FAULT") }

// faultyStore wraps the store with the planted fault, if it is one of storage.
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

// faulty is a store that drops or changes records.
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

// Scan hides the index of due times with the fault lostTimer.
func (f *faulty) Scan(family storage.Family, from, to []byte) storage.Iterator {
	if f.fault == lostTimer && family == storage.Scheduled {
		from = bytes.Repeat([]byte{0xff}, 64)
	}
	return f.store.Scan(family, from, to)
}

// without returns a copy of a batch without the records that drop selects.
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

// lateStore reports a commit before it writes the batch, which it does at the next read or
// 100 ms later.
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

// faultySession removes the delivery number from receipts of acks, so that an ack ends any
// lease of its message.
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
