//go:build cgo

package rocks

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks/files"
)

// salvage reads a damaged store, version by version.
//
// Of each key the newest version counts, by sequence number. RocksDB resets the sequence number of
// a put to 0 where no older version is below it. That is valid among the tables of one version of
// the store, but says nothing in comparison with a log. Hence, in this order:
//
//  1. Log records that MANIFEST says are flushed to tables are ignored.
//  2. Log records behind the last loss in the logs are complete: everything
//     written since. They take precedence over tables.
//  3. Everything else is compared by sequence number.
//
// The steps of a repair, of which each records what it could not read:
//
//	readLogs    all batches of the logs, in memory, with the losses between them
//	openTables  a source for each table, also for those of which nothing can be read
//	merge       family by family, into the new store (merge.go)
//	report      notes for the operator, and the bound of messages that may return
type salvage struct {
	*rebuild
	// listed means that MANIFEST lists the live tables. Otherwise all table files are read, except
	// those that MANIFEST has removed.
	listed bool
	logs   map[storage.Family]*logged
	tables map[storage.Family][]*tableSource
	losses []*loss
	found  uint64 // messages in the new store
}

// loss is an unreadable part of a log.
type loss struct {
	file, what string
	until      uint64 // writes with this sequence number or higher are not in it
	most       uint64 // upper bound of the deletions in it
	messages   uint64 // copied messages that those deletions could have referred to
}

// logged holds what the logs have of one family.
type logged struct {
	ops    map[string]version
	ranges []files.Entry // range deletions with their sequence numbers
	last   []files.Entry // range deletions behind the last loss, numbered above all records
}

// version is the newest logged version of a key.
type version struct {
	sequence uint64
	put      bool
	last     bool // it is behind the last loss
	value    []byte
}

// newSalvage begins a repair of the store that b reads. Tables are taken from MANIFEST only if it
// is intact and surely the newest.
func newSalvage(b *rebuild) *salvage {
	s := &salvage{rebuild: b, logs: map[storage.Family]*logged{}, tables: map[storage.Family][]*tableSource{}}
	for _, f := range storage.Families() {
		s.logs[f] = &logged{ops: map[string]version{}}
	}
	m := b.from.survey.manifest
	s.listed = m != nil && m.Whole
	for _, d := range b.from.survey.damage {
		// A missing log may also mean that this is a MANIFEST of an earlier time.
		if d.File == b.from.survey.name || filepath.Ext(d.File) == ".log" && d.missing {
			s.listed = false
		}
	}
	return s
}

// addLoss records a loss in a log, which may concern any family.
func (s *salvage) addLoss(file string, until, most uint64, format string, args ...any) {
	for f := range s.done.Whole {
		s.done.Whole[f] = false
	}
	s.losses = append(s.losses, &loss{file: file, until: until, most: most, what: fmt.Sprintf(format, args...)})
}

// batchOf is one batch of a log with the sequence number of its first write.
type batchOf struct {
	log     surveyedLog
	first   uint64
	records *storage.Batch
}

// readLogs reads all logs, the oldest first, records the losses and applies the batches.
func (s *salvage) readLogs() error {
	var batches []batchOf
	lastLoss, expect := 0, uint64(0) // lastLoss: index of the first batch behind the last loss
	for _, l := range s.from.survey.logs {
		lostHere := false
		r, err := files.ReadBatches(filepath.Join(s.from.path, l.name), func(b files.Batch, err error) error {
			at, first, n := b.At, b.First, b.Writes
			if err != nil {
				s.addLoss(l.name, math.MaxUint64, math.MaxUint64, "a batch at offset %d cannot be read", at)
				lastLoss = len(batches)
				return nil //nolint:nilerr // recorded as a loss; reading continues
			}
			if expect != 0 && first > expect {
				s.addLoss(l.name, first, first-expect, "%d writes before offset %d are lost", first-expect, at)
				lastLoss, lostHere = len(batches), true
			}
			expect = max(expect, first+n)
			records, err := storage.AdoptBatch(b.Records)
			if err != nil {
				s.addLoss(l.name, first+n, n, "a batch at offset %d cannot be read: %s", at, err)
				lastLoss = len(batches)
				return nil
			}
			batches = append(batches, batchOf{l, first, records})
			return nil
		})
		if err != nil {
			s.addLoss(l.name, math.MaxUint64, math.MaxUint64, "it cannot be read: %s", reason(err))
			lastLoss = len(batches)
			continue
		}
		if r.BadEnd >= 0 {
			s.addLoss(l.name, math.MaxUint64, s.writesAfter(l.name, r.BadEnd), "everything from offset %d on is lost", r.BadEnd)
		}
		if len(r.Damage) > 0 && !lostHere {
			s.addLoss(l.name, math.MaxUint64, s.writesAfter(l.name, r.Damage[0]), "the record at offset %d is lost", r.Damage[0])
			lastLoss = len(batches)
		}
	}
	s.missingLogs()
	// Without MANIFEST the expected end of the logs is unknown.
	m := s.from.survey.manifest
	if m == nil {
		lastLoss = len(batches)
	} else if expect != 0 && expect <= m.LastSequence {
		s.addLoss(s.from.survey.logs[len(s.from.survey.logs)-1].name, m.LastSequence+1, m.LastSequence+1-expect,
			"the last %d writes that %s lists are missing", m.LastSequence+1-expect, s.from.survey.name)
		lastLoss = len(batches)
	}
	for n, b := range batches {
		if err := s.apply(b, n >= lastLoss); err != nil {
			return err
		}
	}
	return nil
}

// missingLogs records the logs that do not exist. The gap of sequence numbers tells what a log
// between two others held.
func (s *salvage) missingLogs() {
	for _, d := range s.from.survey.damage {
		if !d.missing || filepath.Ext(d.File) != ".log" {
			continue
		}
		until, most := uint64(math.MaxUint64), uint64(math.MaxUint64)
		for _, l := range s.from.survey.logs {
			if l.name > d.File && l.first != l.next {
				until = l.first
				break
			}
		}
		s.addLoss(d.File, until, most, "%s", d.What)
	}
}

// writesAfter returns an upper bound of the writes behind an offset of a log.
func (s *salvage) writesAfter(name string, at int64) uint64 {
	const least = 4 // bytes of the shortest write
	info, err := os.Stat(filepath.Join(s.from.path, name))
	if err != nil {
		return math.MaxUint64
	}
	return uint64(max(info.Size()-at, 0))/least + 1
}

// apply adds the writes of a batch to logged. last says that the batch is behind the last loss.
func (s *salvage) apply(b batchOf, last bool) error {
	sequence := b.first
	return b.records.Each(func(r storage.Record) error {
		at := sequence
		sequence++
		if r.Family == storage.Default || !last && s.flushed(r.Family, b.log.number) {
			return nil
		}
		l := s.logs[r.Family]
		switch r.Op {
		case storage.OpDeleteRange:
			e := files.Entry{Key: r.Key, Sequence: at, Kind: files.RangeDelete, Value: r.Value}
			l.ranges = append(l.ranges, e)
			if last {
				e.Sequence = math.MaxUint64
				l.last = append(l.last, e)
			}
		default:
			l.ops[string(r.Key)] = version{sequence: at, put: r.Op == storage.OpPut, last: last, value: r.Value}
		}
		return nil
	})
}

// flushed reports whether the records that a log holds of a family are also in tables.
func (s *salvage) flushed(f storage.Family, log uint64) bool {
	if !s.listed {
		return false
	}
	family := s.from.survey.manifest.Named(f.String())
	return family != nil && log < family.Log
}

// openTables opens the tables of the store as far as they are known.
func (s *salvage) openTables() error {
	there, err := numbered(s.from.path, "", ".sst")
	if err != nil {
		return err
	}
	m := s.from.survey.manifest
	if m == nil {
		m = &files.Manifest{}
		s.note("MANIFEST is lost: all %d table files were read; messages whose deletion was in a compacted table may return", len(there))
	}
	families := map[uint64]string{}
	for _, f := range m.Families {
		for n, t := range f.Tables {
			families[n] = f.Name
			if there[n] == "" && s.listed {
				s.addLostTable(files.TableName(n), f.Name, t, "missing")
			}
		}
	}
	for n, name := range there {
		known := families[n] != ""
		if !known && (s.listed || m.Removed[n]) {
			continue
		}
		t := m.Tables()[n]
		r, err := files.OpenTable(filepath.Join(s.from.path, name), unzstd)
		if err != nil {
			s.addLostTable(name, families[n], t, reason(err).Error())
			continue
		}
		family := families[n]
		if family == "" {
			family = r.Name
		}
		s.addTable(name, family, t, r)
	}
	return nil
}

// familyNamed returns the family with a name, and whether it exists.
func familyNamed(name string) (storage.Family, bool) {
	for _, f := range storage.Families() {
		if f.String() == name {
			return f, true
		}
	}
	return 0, false
}

// addLostTable records a table of which nothing can be read.
func (s *salvage) addLostTable(name, family string, t *files.Table, what string) {
	f, ok := familyNamed(family)
	if !ok {
		s.note("%s: unreadable: %s", name, what)
		return
	}
	src := &tableSource{name: name, family: f, until: math.MaxUint64, unknown: true, why: what}
	if t != nil {
		src.until = t.LastSequence + 1
		src.stretch = &files.Stretch{First: t.First, Last: t.Last}
	} else {
		src.stretch = &files.Stretch{}
	}
	s.tables[f] = append(s.tables[f], src)
}

// addTable adds a table to the merge of its family.
func (s *salvage) addTable(name, family string, t *files.Table, r *files.Reader) {
	f, ok := familyNamed(family)
	if !ok {
		s.note("%s: unreadable: its column family is unknown", name)
		for f := range s.done.Whole {
			s.done.Whole[f] = false
		}
		return
	}
	src := &tableSource{name: name, family: f, until: math.MaxUint64, reader: r, walker: r.Blocks(), ranges: r.Ranges}
	if t != nil {
		src.until, src.first, src.end = t.LastSequence+1, t.First, t.Last
		src.ranges = t.Clip(r.Ranges)
	}
	s.tables[f] = append(s.tables[f], src)
}

// report writes the notes and sums up MayReturn. Several losses may concern the same messages, so
// the sum is bounded by the number of copied messages.
func (s *salvage) report() {
	for _, f := range storage.Families() {
		for _, t := range s.tables[f] {
			s.reportTable(t)
		}
	}
	for _, l := range s.losses {
		may := min(l.most, l.messages)
		s.done.MayReturn += int64(may)
		s.note("%s: %s; up to %d deleted messages may return", l.file, l.what, may)
	}
	s.done.MayReturn = min(s.done.MayReturn, int64(s.found))
}

// reportTable notes what is missing of a table.
func (s *salvage) reportTable(t *tableSource) {
	if !t.damaged() {
		return
	}
	s.done.Whole[t.family] = false
	switch {
	case t.reader == nil:
		s.note("%s (%s): unreadable: %s", t.name, t.family, t.why)
	case t.reader.Known:
		s.note("%s (%s): %d of its %d records were read", t.name, t.family, t.entries, t.reader.Entries)
	default:
		s.note("%s (%s): %d records were read, how many are missing is unknown", t.name, t.family, t.entries)
	}
	if t.family != storage.Messages {
		return
	}
	missing := t.missingDeletions()
	may := min(missing, t.messages)
	s.done.MayReturn += int64(may)
	s.note("%s (%s): %s deletions could not be read; up to %d deleted messages may return", t.name, t.family, atMost(missing), may)
}

// inside reports whether an unreadable range may have contained the key.
func inside(st *files.Stretch, key []byte) bool {
	return (st.First == nil || bytes.Compare(key, st.First) >= 0) && (st.Last == nil || bytes.Compare(key, st.Last) <= 0)
}

func sortedKeys(ops map[string]version) []string {
	keys := make([]string, 0, len(ops))
	for k := range ops {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
