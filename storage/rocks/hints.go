package rocks

import (
	"fmt"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// const char* fila_hints(int leases);
import "C"

// withHints returns the options with hints for messages or their leases, and
// destroys o.
//
// A memtable is a skip list, and most of a commit is spent in finding where in it
// a record belongs. Messages of one fairness key come in the order of their ids
// and go in that order: the next place is near the last one. With a hint for each
// key RocksDB begins its search there. Keys share a bounded number of hints: a
// wrong one costs some comparisons, never the order.
func withHints(o *grocksdb.Options, f storage.Family) (*grocksdb.Options, error) {
	defer o.Destroy()
	leases := C.int(0)
	if f == storage.Leases {
		leases = 1
	}
	with, err := grocksdb.GetOptionsFromString(o, "memtable_insert_with_hint_prefix_extractor="+C.GoString(C.fila_hints(leases)))
	if err != nil {
		return nil, fmt.Errorf("hints: %w", rocksError(err))
	}
	return with, nil
}
