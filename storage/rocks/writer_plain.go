//go:build cgo && plain

package rocks

import "github.com/linxGnu/grocksdb"

// writer applies batches by blocking cgo calls on the caller's goroutine.
type writer struct {
	db               *grocksdb.DB
	unsynced, synced *grocksdb.WriteOptions
}

func newWriter(db *grocksdb.DB, _ *spareLogs) (*writer, error) {
	w := &writer{db: db, unsynced: grocksdb.NewDefaultWriteOptions(), synced: grocksdb.NewDefaultWriteOptions()}
	w.synced.SetSync(true)
	return w, nil
}

// write applies a batch atomically, with sync after an fsync of the log.
func (w *writer) write(batch []byte, sync bool) error {
	options := w.unsynced
	if sync {
		options = w.synced
	}
	b := grocksdb.WriteBatchFrom(batch)
	defer b.Destroy()
	if err := w.db.Write(options, b); err != nil {
		return rocksError(err)
	}
	return nil
}

func (w *writer) close() {
	w.unsynced.Destroy()
	w.synced.Destroy()
}
