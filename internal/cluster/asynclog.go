package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// asyncLog is Raft's log store. It writes the entries of a leader while Raft sends them: Raft sends an
// entry when StoreLogs has returned, and a commit would cost two syncs after each other, the leader's
// and a follower's.
//
//	leader    StoreLogs ──► pending ──writer──► on disk
//	                └─ returns at once            └─ await returns
//	follower  StoreLogs ────────────────────► on disk, returns
//
// Raft counts what StoreLogs has returned for as stored by this node, and an entry of pending may be
// lost with power. So nothing that follows from the commit of an entry may happen before the
// entry is on disk here, too:
//
//   - fsm applies it, and so the proposer learns of it, after await. While an entry waits there for the
//     disk, Raft counts it as applied, and fsm refuses snapshots.
//   - Other nodes are told a commit index up to onDisk only, see transport.
//   - Entries that are no batches are written before StoreLogs returns: members, and the first entry
//     of a leadership.
//   - What StoreLogs writes at once is written after everything pending. So whatever this node
//     confirms as a follower, or as a later leader, stands on a log that is on disk. That another
//     leader finds an entry of pending here does not make it count: a leader counts copies of
//     entries of its own term only, and those of pending are of this node's.
//
// After an error the entries stay pending, readable, and are tried again at intervals: Raft knows of
// them. Everything that has to be written after them is refused meanwhile, which makes a leader step
// down.
type asyncLog struct {
	raft.LogStore // what is on disk; with Raft's cache

	retry time.Duration
	// leads reports whether the entries that StoreLogs gets are made by this node.
	leads func() bool
	// failed is called when pending entries cannot be written.
	failed func(error)
	// mayCut returns an error if the entries from an index on must not be removed; nil: all may be.
	mayCut func(from uint64) error

	onDisk atomic.Uint64 // index of the newest entry on disk
	ended  chan struct{} // closed by close
	done   chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	changed sync.Cond
	pending []*raft.Log // in the order of their indexes, without a gap behind the log on disk
	err     error       // of the last attempt to write pending
	closed  bool        // by close
}

// newAsyncLog returns a log whose writer runs until close.
func newAsyncLog(on raft.LogStore, retry time.Duration, leads func() bool, failed func(error)) (*asyncLog, error) {
	last, err := on.LastIndex()
	if err != nil {
		return nil, err
	}
	l := &asyncLog{LogStore: on, retry: retry, leads: leads, failed: failed, ended: make(chan struct{}), done: make(chan struct{})}
	l.changed.L = &l.mu
	l.onDisk.Store(last)
	go l.write()
	return l, nil
}

// close ends the writer. What it has not written is lost, as in a crash; nothing follows from it.
func (l *asyncLog) close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.ended)
		l.changed.Broadcast()
	}
	l.mu.Unlock()
	<-l.done
}

// IsMonotonic implements raft.MonotonicLogStore: there may be no hole between two entries.
func (l *asyncLog) IsMonotonic() bool { return true }

// StoreLog implements raft.LogStore.
func (l *asyncLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore. It is called by Raft's main goroutine only.
func (l *asyncLog) StoreLogs(entries []*raft.Log) error {
	if l.leads() && allBatches(entries) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil {
			return l.err
		}
		l.pending = append(l.pending, entries...)
		l.changed.Broadcast()
		return nil
	}
	if err := l.drain(); err != nil {
		return err
	}
	err := l.LogStore.StoreLogs(entries)
	if err == nil && len(entries) > 0 {
		l.onDisk.Store(entries[len(entries)-1].Index)
	}
	return err
}

func allBatches(entries []*raft.Log) bool {
	for _, e := range entries {
		if e.Type != raft.LogCommand {
			return false
		}
	}
	return true
}

// drain waits until nothing is pending.
func (l *asyncLog) drain() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) > 0 && l.err == nil && !l.closed {
		l.changed.Wait()
	}
	if l.err == nil && len(l.pending) > 0 {
		return raft.ErrRaftShutdown
	}
	return l.err
}

// await waits until an entry that StoreLogs has taken is on disk, or returns why it is not.
func (l *asyncLog) await(index uint64) error {
	if index <= l.onDisk.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) > 0 && l.pending[0].Index <= index && l.err == nil && !l.closed {
		l.changed.Wait()
	}
	switch {
	case l.err != nil:
		return l.err
	case len(l.pending) > 0 && l.pending[0].Index <= index:
		return raft.ErrRaftShutdown
	}
	return nil
}

// write is the writer's goroutine.
func (l *asyncLog) write() {
	defer close(l.done)
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.pending) == 0 && !l.closed {
			l.changed.Wait()
		}
		if l.closed {
			return
		}
		l.writePending()
	}
}

// writePending writes what is pending when it is called. After an error it returns when it may be called
// again. The caller holds mu, which is unlocked meanwhile.
func (l *asyncLog) writePending() {
	entries := slices.Clone(l.pending)
	l.mu.Unlock()
	err := l.LogStore.StoreLogs(entries)
	l.mu.Lock()
	again := l.err != nil
	l.err = err
	if err == nil {
		l.onDisk.Store(entries[len(entries)-1].Index)
		rest := copy(l.pending, l.pending[len(entries):])
		clear(l.pending[rest:])
		l.pending = l.pending[:rest]
	}
	l.changed.Broadcast()
	if err == nil {
		return
	}
	l.mu.Unlock()
	defer l.mu.Lock()
	if !again {
		l.failed(err)
	}
	select {
	case <-time.After(l.retry):
	case <-l.ended:
	}
}

// GetLog implements raft.LogStore.
func (l *asyncLog) GetLog(index uint64, to *raft.Log) error {
	if index > l.onDisk.Load() {
		l.mu.Lock()
		if len(l.pending) > 0 && index >= l.pending[0].Index && index-l.pending[0].Index < uint64(len(l.pending)) {
			*to = *l.pending[index-l.pending[0].Index]
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
	}
	return l.LogStore.GetLog(index, to)
}

// LastIndex implements raft.LogStore.
func (l *asyncLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.pending); n > 0 {
		return l.pending[n-1].Index, nil
	}
	return l.LogStore.LastIndex()
}

// DeleteRange implements raft.LogStore.
func (l *asyncLog) DeleteRange(from, to uint64) error {
	end := to >= l.onDisk.Load() // else the log is cut off at its beginning, beside the writer
	if end {
		if err := l.drain(); err != nil {
			return err
		}
	}
	// Raft removes all of the log after a copy of the data has arrived, and else what is not that of the leader.
	if first, err := l.LogStore.FirstIndex(); err != nil {
		return err
	} else if end && from > first && l.mayCut != nil {
		if err := l.mayCut(from); err != nil {
			return err
		}
	}
	if err := l.LogStore.DeleteRange(from, to); err != nil {
		return err
	}
	if end {
		l.onDisk.Store(from - 1)
	}
	return nil
}
