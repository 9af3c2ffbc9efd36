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

// salvage reads a store of which something is damaged, version by version.
//
// Of each key the newest version counts, by sequence number. RocksDB replaces the
// number of a put by 0 where nothing older is below it, which is right within the
// tables that belong together, and tells nothing beside a log. So, in this order:
//
//  1. What a family has in logs that MANIFEST says to be in tables is not looked at.
//  2. What is in logs behind the last loss in them is all that was written since: it
//     counts before whatever tables say.
//  3. Everything else is compared by number.
type salvage struct {
	*rebuild
	// listed says that MANIFEST lists the tables; else all that there are and that it
	// has not removed are read.
	listed bool
	logs   map[storage.Family]*logged
	tables map[storage.Family][]*tableSource
	losses []*loss
	found  uint64 // messages
}

// loss is a part of a log, or a table, that cannot be read.
type loss struct {
	file, what string
	until      uint64 // writes from this number on are not in it
	most       uint64 // deletions in it, at most
	messages   uint64 // found, which those could have been about
}

// logged is what the logs have of a family.
type logged struct {
	ops    map[string]version
	ranges []files.Entry // real numbers
	last   []files.Entry // those behind the last loss, as newer than everything
}

// version is the newest one of a key.
type version struct {
	sequence uint64
	put      bool
	last     bool // behind the last loss
	value    []byte
}

func newSalvage(b *rebuild) *salvage {
	s := &salvage{rebuild: b, logs: map[storage.Family]*logged{}, tables: map[storage.Family][]*tableSource{}}
	for _, f := range storage.Families() {
		s.logs[f] = &logged{ops: map[string]version{}}
	}
	m := b.from.survey.manifest
	s.listed = m != nil && m.Whole
	for _, d := range b.from.survey.damage {
		// A missing log may as well be a MANIFEST that is too old.
		if d.File == b.from.survey.name || filepath.Ext(d.File) == ".log" && d.missing {
			s.listed = false
		}
	}
	return s
}

// lost notes a loss in a log, which may be of any family.
func (s *salvage) lost(file string, until, most uint64, format string, args ...any) {
	for f := range s.done.Whole {
		s.done.Whole[f] = false
	}
	s.losses = append(s.losses, &loss{file: file, until: until, most: most, what: fmt.Sprintf(format, args...)})
}

// batchOf is a batch of a log.
type batchOf struct {
	log     surveyedLog
	first   uint64
	records *storage.Batch
}

// readLogs reads all logs, and applies what is in them, the oldest first.
func (s *salvage) readLogs() error {
	var batches []batchOf
	lastLoss, expect := 0, uint64(0) // the batch behind the last loss
	for _, l := range s.from.survey.logs {
		lostHere := false
		r, err := files.ReadLog(filepath.Join(s.from.path, l.name), func(at int64, rep []byte) error {
			first, n, err := files.Sequence(rep)
			if err != nil {
				s.lost(l.name, math.MaxUint64, math.MaxUint64, "a batch at offset %d cannot be read", at)
				lastLoss = len(batches)
				return nil //nolint:nilerr // it is noted, and what follows is read
			}
			if expect != 0 && first > expect {
				s.lost(l.name, first, first-expect, "%d writes before offset %d are lost", first-expect, at)
				lastLoss, lostHere = len(batches), true
			}
			expect = max(expect, first+n)
			clear(rep[:8]) // the number of the first write: a batch has none in memory
			records, err := storage.ParseBatch(rep)
			if err != nil {
				s.lost(l.name, first+n, n, "a batch at offset %d cannot be read: %s", at, err)
				lastLoss = len(batches)
				return nil
			}
			batches = append(batches, batchOf{l, first, records})
			return nil
		})
		if err != nil {
			s.lost(l.name, math.MaxUint64, math.MaxUint64, "it cannot be read: %s", reason(err))
			lastLoss = len(batches)
			continue
		}
		if r.BadEnd >= 0 {
			s.lost(l.name, math.MaxUint64, s.writesAfter(l.name, r.BadEnd), "what is at offset %d and behind it is lost", r.BadEnd)
		}
		if len(r.Damage) > 0 && !lostHere {
			s.lost(l.name, math.MaxUint64, s.writesAfter(l.name, r.Damage[0]), "what is at offset %d is lost", r.Damage[0])
			lastLoss = len(batches)
		}
	}
	s.missingLogs()
	// Without MANIFEST it cannot be told whether the end of the logs is there.
	m := s.from.survey.manifest
	if m == nil {
		lastLoss = len(batches)
	} else if expect != 0 && expect <= m.LastSequence {
		s.lost(s.from.survey.logs[len(s.from.survey.logs)-1].name, m.LastSequence+1, m.LastSequence+1-expect,
			"the last %d writes that %s knows of are not in it", m.LastSequence+1-expect, s.from.survey.name)
		lastLoss = len(batches)
	}
	for n, b := range batches {
		if err := s.apply(b, n >= lastLoss); err != nil {
			return err
		}
	}
	return nil
}

// missingLogs notes the logs that are not there. What a log between two others had is
// known by its numbers already.
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
		s.lost(d.File, until, most, "%s", d.What)
	}
}

// writesAfter bounds how many writes there are behind an offset of a log.
func (s *salvage) writesAfter(name string, at int64) uint64 {
	const least = 4 // bytes of a write
	info, err := os.Stat(filepath.Join(s.from.path, name))
	if err != nil {
		return math.MaxUint64
	}
	return uint64(max(info.Size()-at, 0))/least + 1
}

// apply notes the writes of a batch. last says that it is behind the last loss.
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

// flushed tells whether what a log has of a family is in tables.
func (s *salvage) flushed(f storage.Family, log uint64) bool {
	if !s.listed {
		return false
	}
	family := s.from.survey.manifest.Named(f.String())
	return family != nil && log < family.Log
}

// openTables opens the tables that belong to the store, as far as that is known.
func (s *salvage) openTables() error {
	there, err := numbered(s.from.path, "", ".sst")
	if err != nil {
		return err
	}
	m := s.from.survey.manifest
	if m == nil {
		m = &files.Manifest{}
		s.note("the list of tables is lost: all %d table files are read; what was deleted in a table that was merged away may come back", len(there))
	}
	families := map[uint64]string{}
	for _, f := range m.Families {
		for n, t := range f.Tables {
			families[n] = f.Name
			if there[n] == "" && s.listed {
				s.lostTable(files.TableName(n), f.Name, t, "it is missing")
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
			s.lostTable(name, families[n], t, reason(err).Error())
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

func familyNamed(name string) (storage.Family, bool) {
	for _, f := range storage.Families() {
		if f.String() == name {
			return f, true
		}
	}
	return 0, false
}

// lostTable notes a table of which nothing can be read.
func (s *salvage) lostTable(name, family string, t *files.Table, what string) {
	f, ok := familyNamed(family)
	if !ok {
		s.note("%s: nothing of it can be read: %s", name, what)
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

func (s *salvage) addTable(name, family string, t *files.Table, r *files.Reader) {
	f, ok := familyNamed(family)
	if !ok {
		s.note("%s: which family it belongs to cannot be read", name)
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

// report says what was lost, and how many messages may come back for it. Losses may be
// about the same messages: there are never more than were found.
func (s *salvage) report() {
	for _, f := range storage.Families() {
		for _, t := range s.tables[f] {
			s.reportTable(t)
		}
	}
	for _, l := range s.losses {
		may := min(l.most, l.messages)
		s.done.MayReturn += int64(may) //nolint:gosec // messages that were found
		s.note("%s: %s; for want of deletions in it %d messages may come back", l.file, l.what, may)
	}
	s.done.MayReturn = min(s.done.MayReturn, int64(s.found)) //nolint:gosec // a count
}

func (s *salvage) reportTable(t *tableSource) {
	if !t.damaged() {
		return
	}
	s.done.Whole[t.family] = false
	switch {
	case t.reader == nil:
		s.note("%s (%s): nothing of it can be read: %s", t.name, t.family, t.why)
	case t.reader.Known:
		s.note("%s (%s): %d of its %d records could be read", t.name, t.family, t.entries, t.reader.Entries)
	default:
		s.note("%s (%s): %d of its records could be read", t.name, t.family, t.entries)
	}
	if t.family != storage.Messages {
		return
	}
	missing := t.missingDeletions()
	may := min(missing, t.messages)
	s.done.MayReturn += int64(may) //nolint:gosec // messages that were found
	s.note("%s (%s): %s deletions in it could not be read; %d messages may come back", t.name, t.family, atMost(missing), may)
}

// inside tells whether a key may be in a stretch.
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
