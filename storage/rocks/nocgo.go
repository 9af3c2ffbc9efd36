//go:build !cgo

package rocks

import "github.com/faisca/fila/storage"

// Without cgo the package has the same functions, and those that would open a store return ErrNoCgo.
// So there is never a Store or an Inspection, and their methods are only declared.

// Store is what Open would return.
type Store struct{ operations }

// operations are the methods of a store that callers use.
type operations interface {
	Commit(b *storage.Batch, sync bool) error
	Sync() error
	Get(f storage.Family, key []byte) ([]byte, error)
	Scan(f storage.Family, from, to []byte) storage.Iterator
	Stats() (Stats, error)
	Checkpoint(dir string) error
	Reopen() error
	Replace(change func() error) error
	Close() error
}

// Inspection is what Inspect would return.
type Inspection struct {
	inspecting

	Store  *Store
	Tables []Table
	Damage []Damage
	Fatal  bool
	Torn   string
}

// inspecting are the methods of an inspection.
type inspecting interface {
	VerifyTables(done func(t *Table)) []Damage
	Rebuild(to string, damaged []Damage, copied func()) (*Store, Rebuilt, error)
	Close()
}

// Open returns ErrNoCgo.
func Open(Options) (*Store, error) { return nil, ErrNoCgo }

// Inspect returns ErrNoCgo.
func Inspect(string) (*Inspection, error) { return nil, ErrNoCgo }

// OpenFiles returns 0: no store keeps files open.
func OpenFiles(Mode) int { return 0 }

// Version returns "": no RocksDB is linked.
func Version() string { return "" }
