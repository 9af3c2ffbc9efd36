package rocks

import (
	"fmt"
	"math"

	"github.com/faisca/fila/storage"
)

// This file makes a sound store of what can be read of a damaged one. The damaged one
// is only read. There are two ways:
//
//  1. Where all files are sound, RocksDB reads them: it is about records.
//  2. Else we read tables and logs ourselves, as far as they can be read (salvage.go).
//     A record is in the new store if the newest readable version of its key is a put,
//     so a deletion counts wherever it is readable: also if the record that it deletes
//     is in a damaged table, or the deletion itself in another part of one.
//
// What cannot be read may have been deletions. How many messages may come back for that
// is bounded from both sides: by how many deletions are missing, which tables and the
// sequence numbers of the log tell, and by how many messages there are that they could
// have been about.

// Rebuilt says what became of a store.
type Rebuilt struct {
	Records int64    // that were copied
	Notes   []string // what was lost, or may have been, a line each
	// MayReturn is how many of the messages at most were deleted before.
	MayReturn int64
	// Whole are the families of which nothing is missing.
	Whole map[storage.Family]bool
}

const copyBytes = 4 << 20 // of a batch of copied records

// Rebuild copies what can be read into a new store in a directory that does not exist
// yet, given what VerifyTables has found, and returns it open.
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
		_ = s.Close() // it is of no use
		return nil, Rebuilt{}, fmt.Errorf("rebuild %s: %w", i.path, err)
	}
	return s, b.done, nil
}

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

// copyAll copies every record but the format's, which the new store has its own of.
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

// fromParts is the second way.
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

// atMost says a bound in words.
func atMost(n uint64) string {
	if n == math.MaxUint64 {
		return "an unknown number of"
	}
	return fmt.Sprintf("up to %d", n)
}
