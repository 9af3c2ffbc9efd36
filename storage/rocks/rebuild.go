package rocks

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// This file makes a sound store of what can be read of a damaged one. The damaged one
// is only read. There are two ways:
//
//  1. Where all files are sound, RocksDB reads them: it is about records.
//  2. Else its own repair makes new lists for copies of the sound tables. What can be
//     read of the damaged ones is added where it is not known already, and then the log
//     is applied, which we read ourselves.
//
// In the second way something deleted may come back, if the record of its deletion is
// what was lost: a message may be delivered again, but none is lost that can be read.

// Rebuilt says what became of a store.
type Rebuilt struct {
	Records int64    // that were copied
	Notes   []string // what was lost, or may have been, a line each
}

const (
	copyBytes     = 4 << 20 // of a batch of copied records
	sequenceBytes = 8       // at the start of a batch in the log
)

// Rebuild copies what can be read into a new store in a directory that does not exist
// yet, given what VerifyTables has found, and returns it open.
func (i *Inspection) Rebuild(to string, damaged []Damage, copied func()) (*Store, Rebuilt, error) {
	s, err := Open(Options{Path: to})
	if err != nil {
		return nil, Rebuilt{}, err
	}
	b := &rebuild{from: i, to: s, copied: copied}
	if i.listed && !i.Fatal && len(damaged) == 0 {
		err = b.copyAll(i.Store)
	} else {
		err = b.fromParts(damaged, to+"-tables")
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

// fromParts is the second way. work is a directory for copies of the tables.
func (b *rebuild) fromParts(damaged []Damage, work string) error {
	bad := map[string]bool{}
	for _, d := range damaged {
		bad[d.File] = true
	}
	if err := os.Mkdir(work, 0o750); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	sound := 0
	for _, t := range b.from.Tables {
		if bad[t.File] {
			continue
		}
		sound++
		if err := os.Link(filepath.Join(b.from.path, t.File), filepath.Join(work, t.File)); err != nil {
			return err
		}
	}
	if sound > 0 {
		if err := b.fromTables(work); err != nil {
			return err
		}
	}
	for _, d := range damaged {
		if err := b.salvage(d); err != nil {
			return err
		}
	}
	if err := b.flush(); err != nil {
		return err
	}
	return b.replay()
}

// fromTables copies what is in sound tables.
func (b *rebuild) fromTables(dir string) error {
	o := grocksdb.NewDefaultOptions()
	defer o.Destroy()
	logInto(o, dir)
	if err := grocksdb.RepairDb(dir, o); err != nil {
		return rocksError(err)
	}
	d, err := openReadOnly(dir, true, grocksdb.TolerateCorruptedTailRecordsRecovery)
	if err != nil {
		return err
	}
	s := newStore(dir, profile{}, d)
	defer s.Close()
	return b.copyAll(s)
}

// salvage adds what can be read of a damaged table.
func (b *rebuild) salvage(d Damage) error {
	if err := b.flush(); err != nil { // to see below what is known already
		return err
	}
	t, err := openTable(filepath.Join(b.from.path, d.File))
	if err != nil {
		b.note("%s: nothing of it can be read: %s", d.File, err)
		return nil
	}
	defer t.close()
	family, known := storage.Default, false
	for _, f := range storage.Families() {
		if f.String() == t.family {
			family, known = f, f != storage.Default
		}
	}
	if !known {
		return nil
	}
	read, added := 0, 0
	err = t.salvage(func(key, value []byte) error {
		read++
		if _, err := b.to.Get(family, key); err == nil {
			return nil
		}
		added++
		return b.put(family, key, value)
	})
	b.note("%s (%s): of %d records %d could be read, of which %d were not known already", d.File, family, t.entries, read, added)
	return err
}

// replay applies the log. Some of it is in the tables already: a record is deleted
// before it is put, as what is put twice cannot be removed by a single delete.
func (b *rebuild) replay() error {
	files, err := logs(b.from.path)
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Base(file)
		r, err := readLog(file, func(at int64, rep []byte) error {
			clear(rep[:min(sequenceBytes, len(rep))]) // the new store has its own
			batch, err := storage.ParseBatch(rep)
			if err != nil {
				b.note("%s: a batch at offset %d cannot be read: %s", name, at, err)
				return nil
			}
			return b.apply(batch)
		})
		if err != nil {
			return err
		}
		for _, at := range r.damage {
			b.note("%s: what was at offset %d is lost", name, at)
		}
	}
	return nil
}

func (b *rebuild) apply(batch *storage.Batch) error {
	err := batch.Each(func(r storage.Record) error {
		switch {
		case r.Family == storage.Default:
		case r.Op == storage.OpPut:
			b.batch.Delete(r.Family, r.Key)
			return b.put(r.Family, r.Key, r.Value)
		case r.Op == storage.OpDeleteRange:
			b.batch.DeleteRange(r.Family, r.Key, r.Value)
		default:
			b.batch.Delete(r.Family, r.Key)
		}
		return nil
	})
	return err
}
