package cluster

import (
	"context"
	"fmt"
	"hash/crc32"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// liveHeap returns the bytes that are reachable.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A batch of hundreds of parts is replicated as a whole, and while it is, the leader has it once and each
// node collects it once; what is under way between them is bounded.
func TestALargeBatchIsInMemoryOnceForEachNode(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of MiB, which the race detector is too slow for: at full length only")
	}
	const value, size = 1 << 20, 200 << 20
	c := newTrial(t, "a", "b", "c")
	c.election = 10 * time.Second // a disk that is busy with the log is no reason for another leader
	c.logBytes = 1 << 30
	before := liveHeap()
	var mu sync.Mutex
	peak, written := int64(0), 0
	for _, r := range c.nodes {
		// The store keeps checksums of large values, so that only what replication has counts.
		r.store.change = func(b *storage.Batch) *storage.Batch {
			if int64(b.Size()) < size {
				return b
			}
			mu.Lock()
			defer mu.Unlock()
			written++
			peak = max(peak, liveHeap()-before)
			small := &storage.Batch{}
			err := b.Each(func(r storage.Record) error {
				v := r.Value
				if len(v) == value {
					v = fmt.Append(nil, crc32.ChecksumIEEE(v))
				}
				small.Put(r.Family, r.Key, v)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			return small
		}
	}
	var began atomic.Bool
	done := make(chan error, 1)
	c.work = func(ctx context.Context, _ string, l *Leadership) error {
		if !began.Swap(true) {
			done <- commitLarge(l, size, value)
		}
		select {
		case <-ctx.Done():
		case <-l.Yield:
		}
		return nil
	}
	c.startAll()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	c.formed()
	c.equal()
	mu.Lock()
	defer mu.Unlock()
	if written != len(c.nodes) {
		t.Errorf("%d nodes have written the batch", written)
	}
	if n := len(c.nodes["a"].store.contents(t)); n < int(size/value)*20 {
		t.Errorf("the store has %d bytes", n)
	}
	// Each node has the entries of the log's cache and those under way besides.
	most := (1+int64(len(c.nodes)))*size + int64(len(c.nodes))*(logCache+2*proposed)<<20
	if peak > most {
		t.Errorf("%d MiB are in memory for a batch of %d MiB in three nodes, want at most %d", peak>>20, size>>20, most>>20)
	}
	t.Logf("%d MiB for a batch of %d MiB in three nodes of one process", peak>>20, size>>20)
}

// commitLarge commits a batch of values that differ.
func commitLarge(l *Leadership, size, value int64) error {
	var b storage.Batch
	v := make([]byte, value)
	for i := range size / value {
		v[i%value]++
		b.Put(storage.State, fmt.Appendf(nil, "large-%06d", i), v)
	}
	return l.Store.Commit(&b, true)
}
