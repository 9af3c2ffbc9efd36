//go:build cgo

package rocks

import (
	"sync"
	"time"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// How long a call that waits for flushes has lasted when flushes are requested again for the first
// time, and the longest pause before they are again: a compaction of a range takes long after its flush.
const (
	flushAgain    = 50 * time.Millisecond
	flushAgainMax = 10 * time.Second
)

// awaitFlushes runs do, which waits for flushes: those that RocksDB forgets are requested again.
//
// A flush that RocksDB begins by itself syncs the logs first, and a flush that is requested at that
// moment is forgotten: the first takes the memtables that were full when it began and clears the
// request. What is left is fewer memtables than RocksDB flushes by itself, so the caller waits until
// later writes fill others, in an idle store for ever (facebook/rocksdb#13280, seen with RocksDB 7.8 and
// 8.9).
func (d *database) awaitFlushes(do func()) {
	done := make(chan struct{})
	var again sync.WaitGroup
	again.Go(func() {
		for pause := flushAgain; ; pause = min(2*pause, flushAgainMax) {
			select {
			case <-done:
				return
			case <-time.After(pause):
				d.flushForgotten()
			}
		}
	})
	do()
	close(done)
	again.Wait()
}

// flushForgotten requests a flush of each family that has full memtables, none of which is being
// flushed or is to be.
func (d *database) flushForgotten() {
	o := grocksdb.NewDefaultFlushOptions()
	defer o.Destroy()
	o.SetWait(false)
	for _, h := range d.families {
		if h == nil {
			continue
		}
		is := func(property string) bool {
			n, known := d.db.GetIntPropertyCF(property, h)
			return known && n > 0
		}
		if is("rocksdb.num-immutable-mem-table") && !is("rocksdb.mem-table-flush-pending") && !is("rocksdb.num-running-flushes") {
			_ = d.db.FlushCF(h, o) // the caller's own flush, or the next write, says why
		}
	}
}

// flush writes the memtables of all families into tables, one after the other, until more says no.
// The first error ends it.
func (d *database) flush(more func() bool) (err error) {
	o := grocksdb.NewDefaultFlushOptions()
	defer o.Destroy()
	o.SetWait(true)
	d.awaitFlushes(func() {
		for _, h := range d.families {
			if h != nil && err == nil && more() {
				err = d.db.FlushCF(h, o)
			}
		}
	})
	return err
}

// compact compacts a range of a family, with what is in memory. Errors are those of the store, which
// the next write reports.
func (d *database) compact(f storage.Family, r grocksdb.Range, o *grocksdb.CompactRangeOptions) {
	d.awaitFlushes(func() { d.db.CompactRangeCFOpt(d.families[f], r, o) })
}
