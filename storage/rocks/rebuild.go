//go:build cgo

package rocks

import (
	"fmt"
	"math"

	"github.com/faisca/fila/storage"
)

// This file builds a new store from the readable part of a damaged one, which is only read. There
// are two cases:
//
//   1. All files are intact, and only records are wrong: RocksDB reads the store.
//   2. Otherwise tables and logs are read without RocksDB (salvage.go). A record is
//      copied if the newest readable version of its key is a put. A deletion thus
//      counts wherever it is readable, also if the record is in a damaged table or
//      the deletion in the intact part of one.
//
// Unreadable parts may have contained deletions, so deleted messages may return. Their number is
// bounded from both sides: by the number of missing deletions, which tables and sequence numbers
// tell, and by the number of messages that those deletions could have referred to.

const copyBytes = 4 << 20 // size of a batch of copied records

// Rebuild copies everything readable into a new store in the directory to, which must not exist,
// and returns that store open. damaged is the result of VerifyTables; copied is called after each
// record.
func (i *Inspection) Rebuild(to string, damaged []Damage, copied func()) (*Store, Rebuilt, error) {
	s, err := Open(Options{Path: to})
	if err != nil {
		return nil, Rebuilt{}, err
	}
	b := &rebuild{from: i, to: s, copied: copied}
	b.done.Whole = map[storage.Family]bool{}
	for _, f := range storage.Families() {
		b.done.Whole[f] = true
	}
	if i.listed && !i.Fatal && len(damaged) == 0 {
		err = b.copyAll(i.Store)
	} else {
		err = b.fromParts()
	}
	if err == nil {
		err = b.flush()
	}
	if err == nil {
		err = s.Sync()
	}
	if err != nil {
		_ = s.Close() // an incomplete copy is discarded
		return nil, Rebuilt{}, fmt.Errorf("rebuild %s: %w", i.path, err)
	}
	return s, b.done, nil
}

// rebuild is a rebuild in progress: batched writes to the new store and the report.
type rebuild struct {
	from   *Inspection
	to     *Store
	batch  storage.Batch
	done   Rebuilt
	copied func()
}

func (b *rebuild) note(format string, args ...any) {
	b.done.Notes = append(b.done.Notes, fmt.Sprintf(format, args...))
}

func (b *rebuild) flush() error {
	err := b.to.Commit(&b.batch, false)
	b.batch.Reset()
	return err
}

func (b *rebuild) put(f storage.Family, key, value []byte) error {
	b.batch.Put(f, key, value)
	b.done.Records++
	b.copied()
	if b.batch.Size() < copyBytes {
		return nil
	}
	return b.flush()
}

// copyAll copies every record except the format version, which the new store has already written.
func (b *rebuild) copyAll(from *Store) error {
	for _, f := range storage.Families() {
		if f == storage.Default {
			continue
		}
		if err := b.copyFamily(from, f); err != nil {
			return err
		}
	}
	return nil
}

func (b *rebuild) copyFamily(from *Store, f storage.Family) error {
	it := from.Scan(f, nil, nil)
	defer it.Close()
	for it.Next() {
		if err := b.put(f, it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Err()
}

// fromParts is case 2: it reads logs and tables and merges them family by family.
func (b *rebuild) fromParts() error {
	s := newSalvage(b)
	if err := s.readLogs(); err != nil {
		return err
	}
	if err := s.openTables(); err != nil {
		return err
	}
	for _, f := range storage.Families() {
		if f == storage.Default {
			continue
		}
		if err := s.merge(f); err != nil {
			return err
		}
	}
	s.report()
	return nil
}

// atMost words a bound for the report.
func atMost(n uint64) string {
	if n == math.MaxUint64 {
		return "an unknown number of"
	}
	return fmt.Sprintf("up to %d", n)
}
