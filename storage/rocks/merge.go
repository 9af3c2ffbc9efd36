//go:build cgo

package rocks

import (
	"bytes"
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks/files"
)

// The merge of a damaged store. Per family, tables and logs are read once, in the order of their
// keys and side by side, so the memory of a repair does not grow with the tables:
//
//	tables ──Walker──▶ block ──▶ heap, by key ─┐
//	                                           ├─ step: newest version of a key ──▶ emit, unless deleted
//	logs, in memory ──▶ keys, sorted ──────────┘
//
// What cannot be read is remembered with the position of the merge: a stretch of a table, or a
// loss in a log. A message that is emitted while one of them could contain its deletion may have
// been removed before, and is counted as one that may return.

// tableSource is the cursor of a merge over one table.
type tableSource struct {
	name    string
	family  storage.Family
	why     string // why nothing of it can be read, if that is known
	until   uint64 // writes with this sequence number or higher are not in it
	unknown bool   // even the number of missing records is unknown

	reader *files.Reader // nil: nothing of the table can be read
	walker *files.Walker
	block  []files.Entry // remaining entries of the current block
	ranges []files.Entry
	// first and end are its smallest and largest key, nil where they are unknown.
	first, end []byte
	// stretch is the unreadable range at the current position of the merge. It ends where the block
	// behind it begins.
	stretch *files.Stretch

	lost               bool
	entries, deletions uint64 // read so far
	messages           uint64 // messages found in its unreadable ranges, see emit
}

// fill loads the next block if the current one is used up, and reports whether there is an entry.
// It records unreadable ranges on the way.
func (t *tableSource) fill() bool {
	for len(t.block) == 0 {
		if t.walker == nil {
			return false
		}
		block, lost, ok := t.walker.Next()
		if !ok {
			t.walker = nil
			return false
		}
		if lost != nil {
			if lost.First == nil {
				lost.First = t.first
			}
			if lost.Last == nil {
				lost.Last = t.end
			}
			t.stretch, t.lost = lost, true
			continue
		}
		t.block = block
		t.entries += uint64(len(block))
		for _, e := range block {
			if e.Kind != files.Put {
				t.deletions++
			}
		}
	}
	return true
}

// damaged reports whether records of the table are missing. A lost index alone is no damage if all
// entries were found without it.
func (t *tableSource) damaged() bool {
	if t.reader == nil || t.unknown {
		return true
	}
	if t.reader.Known && t.entries+uint64(len(t.reader.Ranges)) >= t.reader.Entries && !t.rangesMissing() {
		return false
	}
	return t.lost || t.rangesMissing()
}

// rangesMissing reports whether range deletions of the table could not be read.
func (t *tableSource) rangesMissing() bool {
	return t.reader.RangesLost && (!t.reader.Known || t.reader.RangeDeletions > uint64(len(t.reader.Ranges))) ||
		t.reader.Known && t.reader.RangeDeletions > uint64(len(t.reader.Ranges))
}

// missingDeletions returns an upper bound of the deletions that could not be read; MaxUint64 if it
// is unknown.
func (t *tableSource) missingDeletions() uint64 {
	if t.reader == nil || !t.reader.Known || t.rangesMissing() {
		return math.MaxUint64
	}
	return t.reader.Deletions - min(t.deletions+uint64(len(t.reader.Ranges)), t.reader.Deletions)
}

// sources is a heap of tables ordered by current key, the newest version first.
type sources []*tableSource

func (s *sources) Len() int      { return len(*s) }
func (s *sources) Swap(i, j int) { (*s)[i], (*s)[j] = (*s)[j], (*s)[i] }
func (s *sources) Less(i, j int) bool {
	a, b := &(*s)[i].block[0], &(*s)[j].block[0]
	if c := bytes.Compare(a.Key, b.Key); c != 0 {
		return c < 0
	}
	return a.Sequence > b.Sequence
}

// Push implements heap.Interface.
func (s *sources) Push(x any) { *s = append(*s, x.(*tableSource)) } //nolint:forcetypeassert // only heap calls it

// Pop implements heap.Interface.
func (s *sources) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// merge writes the surviving records of a family into the new store: of each key the newest
// readable version, if it is a put that no range deletion covers.
func (s *salvage) merge(f storage.Family) error {
	m := familyMerge{salvage: s, family: f, logs: s.logs[f], keys: sortedKeys(s.logs[f].ops)}
	var inTables []files.Entry
	for _, t := range s.tables[f] {
		inTables = append(inTables, t.ranges...)
		if t.fill() {
			m.heap = append(m.heap, t)
		}
	}
	m.cover = newCover(slices.Concat(inTables, m.logs.ranges, m.logs.last))
	m.coverLogs = newCover(slices.Concat(inTables, m.logs.ranges))
	heap.Init(&m.heap)
	for len(m.heap) > 0 || len(m.keys) > 0 {
		if err := m.step(); err != nil {
			return err
		}
	}
	return nil
}

// familyMerge merges the tables of one family with what the logs hold of it.
type familyMerge struct {
	*salvage
	family storage.Family
	logs   *logged
	keys   []string // remaining keys of the logs, sorted
	heap   sources
	// cover has the range deletions that apply to records in tables, coverLogs those that apply to
	// records in logs.
	cover, coverLogs cover
}

// step consumes all versions of the smallest remaining key and emits the newest.
func (m *familyMerge) step() error {
	var key []byte
	if len(m.heap) > 0 {
		key = m.heap[0].block[0].Key
	}
	op, inLog := version{}, false
	if len(m.keys) > 0 && (key == nil || m.keys[0] <= string(key)) {
		key = []byte(m.keys[0])
		op, inLog = m.logs.ops[m.keys[0]], true
		m.keys = m.keys[1:]
	}
	newest, inTable := files.Entry{}, false
	for len(m.heap) > 0 && bytes.Equal(m.heap[0].block[0].Key, key) {
		t := m.heap[0]
		if e := t.block[0]; !inTable {
			newest, inTable = e, true
		}
		t.block = t.block[1:]
		if t.fill() {
			heap.Fix(&m.heap, 0)
		} else {
			heap.Pop(&m.heap)
		}
	}
	if inLog && (op.last || !inTable || op.sequence >= newest.Sequence) {
		if !op.put || m.coverLogs.newestDeletion(key) > op.sequence {
			return nil
		}
		return m.emit(key, op.value, op.sequence)
	}
	if newest.Kind != files.Put || m.cover.newestDeletion(key) > newest.Sequence {
		return nil
	}
	return m.emit(key, newest.Value, newest.Sequence)
}

// emit writes a record. For a message it also counts the losses that could have contained its
// deletion: report derives the bound of returning messages from that.
func (m *familyMerge) emit(key, value []byte, sequence uint64) error {
	if m.family == storage.Messages {
		m.found++
		for _, t := range m.tables[m.family] {
			if st := t.stretch; sequence < t.until && (st != nil && inside(st, key) || t.reader != nil && t.rangesMissing()) {
				t.messages++
			}
		}
		for _, l := range m.losses {
			if sequence < l.until {
				l.messages++
			}
		}
	}
	return m.put(m.family, key, value)
}

// cover looks up the newest range deletion of a key.
type cover struct {
	from []files.Entry // disjoint ranges in order; Sequence is that of the newest deletion
}

// newCover splits overlapping range deletions into disjoint ranges, in O(n log n).
func newCover(ranges []files.Entry) cover {
	var bounds [][]byte
	for _, r := range ranges {
		bounds = append(bounds, r.Key, r.Value)
	}
	slices.SortFunc(bounds, bytes.Compare)
	bounds = slices.CompactFunc(bounds, bytes.Equal)
	byStart := slices.SortedFunc(slices.Values(ranges), func(a, b files.Entry) int { return bytes.Compare(a.Key, b.Key) })
	var c cover
	var open newestFirst
	for i, from := range bounds[:max(len(bounds)-1, 0)] {
		for len(byStart) > 0 && bytes.Compare(byStart[0].Key, from) <= 0 {
			heap.Push(&open, byStart[0])
			byStart = byStart[1:]
		}
		for len(open) > 0 && bytes.Compare(open[0].Value, from) <= 0 {
			heap.Pop(&open)
		}
		if len(open) > 0 {
			c.from = append(c.from, files.Entry{Key: from, Value: bounds[i+1], Sequence: open[0].Sequence})
		}
	}
	return c
}

// newestDeletion returns the sequence number of the newest range deletion that covers the key, or
// 0.
func (c cover) newestDeletion(key []byte) uint64 {
	i, found := slices.BinarySearchFunc(c.from, key, func(e files.Entry, k []byte) int { return bytes.Compare(e.Key, k) })
	if !found {
		i--
	}
	if i < 0 || bytes.Compare(key, c.from[i].Value) >= 0 {
		return 0
	}
	return c.from[i].Sequence
}

// newestFirst is a heap of range deletions by descending sequence number.
type newestFirst []files.Entry

func (n *newestFirst) Len() int           { return len(*n) }
func (n *newestFirst) Swap(i, j int)      { (*n)[i], (*n)[j] = (*n)[j], (*n)[i] }
func (n *newestFirst) Less(i, j int) bool { return cmp.Less((*n)[j].Sequence, (*n)[i].Sequence) }

// Push implements heap.Interface.
func (n *newestFirst) Push(x any) { *n = append(*n, x.(files.Entry)) } //nolint:forcetypeassert // only heap calls it

// Pop implements heap.Interface.
func (n *newestFirst) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}
