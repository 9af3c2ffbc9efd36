package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Manifest is the state of a database that a MANIFEST describes: the sum of all version
// edits.
type Manifest struct {
	Log
	// Whole means that every record was read and understood, and that they describe a database.
	Whole bool
	// Unread counts the records that were not understood.
	Unread       int
	LastSequence uint64
	NextFile     uint64 // number of the next new file; 0: not stated, and no database opens from it
	MinLog       uint64 // logs with a lower number are obsolete
	Families     map[uint32]*Family
	MaxFamily    uint32 // highest family number; 0: not stated, as in the first MANIFEST
	// Removed holds the numbers of tables that are no longer part of the database.
	Removed map[uint64]bool
}

// Family is a column family and its live tables.
type Family struct {
	ID     uint32
	Name   string
	Log    uint64 // its records in logs with a lower number are flushed
	Tables map[uint64]*Table
}

// Table is the description of a live table. First and Last are user keys.
type Table struct {
	Number        uint64
	Size          uint64
	First, Last   []byte
	LastOpen      bool // Last is exclusive: the end of a range deletion
	FirstSequence uint64
	LastSequence  uint64
}

// Clip restricts range deletions to the keys of the table. Beyond them they belong to
// another table and may concern versions older than its own.
func (t *Table) Clip(ranges []Entry) []Entry {
	var clipped []Entry
	end := t.Last
	if !t.LastOpen {
		end = append(slices.Clone(t.Last), 0)
	}
	for _, r := range ranges {
		if bytes.Compare(r.Key, t.First) < 0 {
			r.Key = t.First
		}
		if bytes.Compare(r.Value, end) > 0 {
			r.Value = end
		}
		if bytes.Compare(r.Key, r.Value) < 0 {
			clipped = append(clipped, r)
		}
	}
	return clipped
}

// Tags of the fields of a version edit. Unknown tags with the bit tagIgnorable have a
// length and are skipped.
const (
	tagComparator, tagLogNumber, tagNextFile, tagLastSequence, tagCompactCursor = 1, 2, 3, 4, 5
	tagDeletedFile, tagPrevLog, tagMinLog                                       = 6, 9, 10
	tagNewFile4                                                                 = 103
	tagFamily, tagFamilyAdd, tagFamilyDrop, tagMaxFamily, tagAtomicGroup        = 200, 201, 202, 203, 300
	tagIgnorable                                                                = 1 << 13
	fieldsEnd                                                                   = 1
)

// ReadManifest reads a MANIFEST. Records that cannot be read are skipped, and Whole is
// then false. It fails only if the file cannot be read.
func ReadManifest(path string) (*Manifest, error) {
	m := &Manifest{Families: map[uint32]*Family{}, Removed: map[uint64]bool{}}
	var err error
	m.Log, err = ReadLog(path, func(_ int64, record []byte) error {
		e := edit{Manifest: m, rest: record}
		if e.apply() != nil {
			m.Unread++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.Whole = len(m.Damage) == 0 && m.BadEnd < 0 && m.Unread == 0 && m.NextFile > 0
	return m, nil
}

// Named returns the family with a name, or nil.
func (m *Manifest) Named(name string) *Family {
	for _, f := range m.Families {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Tables returns the live tables of all families by number.
func (m *Manifest) Tables() map[uint64]*Table {
	all := map[uint64]*Table{}
	for _, f := range m.Families {
		maps.Copy(all, f.Tables)
	}
	return all
}

// OldestLog returns the number of the oldest log that may be needed.
func (m *Manifest) OldestLog() uint64 {
	least := ^uint64(0)
	for _, f := range m.Families {
		least = min(least, f.Log)
	}
	if len(m.Families) == 0 {
		least = 0
	}
	return max(least, m.MinLog)
}

// OldestKept returns the number from which on all logs exist. Where RocksDB notes no MinLog,
// as RocksDB 6 does not, it removes logs that only empty families refer to.
func (m *Manifest) OldestKept() uint64 {
	if m.MinLog == 0 && len(m.Tables())+len(m.Removed) > 0 {
		return m.NewestLog()
	}
	return m.OldestLog()
}

// NewestLog returns a number that the newest log has or exceeds.
func (m *Manifest) NewestLog() uint64 {
	most := m.MinLog
	for _, f := range m.Families {
		most = max(most, f.Log)
	}
	return most
}

// edit parses one version edit and applies it to the Manifest, completely or not at all.
type edit struct {
	*Manifest
	rest   []byte
	family uint32
	failed bool
	added  []*Table
	gone   []uint64
	name   string
	create bool
	drop   bool
	log    uint64
	hasLog bool
}

var errEdit = errors.New("unknown record")

// apply parses all fields first, so a damaged edit has no effect.
func (e *edit) apply() error {
	for len(e.rest) > 0 && !e.failed {
		e.field(e.number())
	}
	if e.failed {
		return errEdit
	}
	if e.drop {
		delete(e.Families, e.family)
		return nil
	}
	f := e.Families[e.family]
	if f == nil {
		f = &Family{ID: e.family, Tables: map[uint64]*Table{}}
		if e.family == 0 {
			f.Name = "default"
		}
		e.Families[e.family] = f
	}
	if e.create {
		f.Name = e.name
	}
	if e.hasLog {
		f.Log = e.log
	}
	for _, n := range e.gone {
		delete(f.Tables, n)
		e.Removed[n] = true
	}
	for _, t := range e.added { // after removals: a move to another level removes and adds the table
		f.Tables[t.Number] = t
		delete(e.Removed, t.Number)
	}
	return nil
}

// field parses the value of one tag.
func (e *edit) field(tag uint64) {
	switch tag {
	case tagComparator:
		e.bytes()
	case tagLogNumber:
		e.log, e.hasLog = e.number(), true
	case tagNextFile:
		e.NextFile = max(e.NextFile, e.number())
	case tagPrevLog, tagAtomicGroup:
		e.number()
	case tagMaxFamily:
		e.MaxFamily = max(e.MaxFamily, uint32(e.number()))
	case tagLastSequence:
		e.LastSequence = max(e.LastSequence, e.number())
	case tagMinLog:
		e.MinLog = max(e.MinLog, e.number())
	case tagCompactCursor:
		e.number()
		e.bytes()
	case tagDeletedFile:
		e.number()
		e.gone = append(e.gone, e.number())
	case tagNewFile4:
		e.table()
	case tagFamily:
		e.family = uint32(e.number())
	case tagFamilyAdd:
		e.create, e.name = true, string(e.bytes())
	case tagFamilyDrop:
		e.drop = true
	default:
		if tag&tagIgnorable == 0 {
			e.failed = true
			return
		}
		e.bytes()
	}
}

// table parses a new-file entry with its optional fields.
func (e *edit) table() {
	e.number() // level
	t := &Table{Number: e.number(), Size: e.number()}
	t.First = userKey(e.bytes())
	last := e.bytes()
	t.Last, t.LastOpen = userKey(last), open(last)
	t.FirstSequence, t.LastSequence = e.number(), e.number()
	for !e.failed {
		if e.number() == fieldsEnd {
			break
		}
		e.bytes()
	}
	e.added = append(e.added, t)
}

// number parses a varint; it sets failed at the end of the record.
func (e *edit) number() uint64 {
	n, used := binary.Uvarint(e.rest)
	if used <= 0 {
		e.failed, e.rest = true, nil
		return 0
	}
	e.rest = e.rest[used:]
	return n
}

// bytes parses a length-prefixed string; it sets failed if it exceeds the record.
func (e *edit) bytes() []byte {
	n := e.number()
	if n > uint64(len(e.rest)) {
		e.failed, e.rest = true, nil
		return nil
	}
	b := e.rest[:n]
	e.rest = e.rest[n:]
	return b
}

const tagBytes = 8 // suffix of each key in a table: kind and sequence number

// userKey strips the suffix of kind and sequence number from an internal key.
func userKey(internal []byte) []byte {
	return slices.Clone(internal[:max(len(internal)-tagBytes, 0)])
}

// open reports whether a key is the exclusive end of a range deletion: its sequence
// number is the maximum.
func open(internal []byte) bool {
	if len(internal) < tagBytes {
		return false
	}
	tag := binary.LittleEndian.Uint64(internal[len(internal)-tagBytes:])
	return Kind(tag&0xff) == RangeDelete && tag>>8 == 1<<56-1
}

// TableName returns the file name of a table.
func TableName(n uint64) string { return fmt.Sprintf("%06d.sst", n) }

// LogName returns the file name of a log.
func LogName(n uint64) string { return fmt.Sprintf("%06d.log", n) }
