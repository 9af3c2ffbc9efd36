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

// tableSource is a table on its way into a merge.
type tableSource struct {
	name    string
	family  storage.Family
	why     string // what is wrong with it, if that is known
	until   uint64 // writes from this number on are not in it
	unknown bool   // not even how much is missing is known

	reader *files.Reader // nil: nothing of it can be read
	walker *files.Walker
	block  []files.Entry // what is left of the block that is read
	ranges []files.Entry
	// first and end are its keys; nil: they are not known.
	first, end []byte
	// stretch is what cannot be read at the place where the merge is; it ends where the
	// block that was read behind it begins.
	stretch *files.Stretch

	lost               bool
	entries, deletions uint64 // that were read
	messages           uint64 // that were found in stretches
}

// fill makes sure that there is an entry, and reports whether there is.
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

// damaged tells whether something of it could not be read. An index that is lost is no
// loss if all entries were found.
func (t *tableSource) damaged() bool {
	if t.reader == nil || t.unknown {
		return true
	}
	if t.reader.Known && t.entries+uint64(len(t.reader.Ranges)) >= t.reader.Entries && !t.rangesMissing() {
		return false
	}
	return t.lost || t.rangesMissing()
}

func (t *tableSource) rangesMissing() bool {
	return t.reader.RangesLost && (!t.reader.Known || t.reader.RangeDeletions > uint64(len(t.reader.Ranges))) ||
		t.reader.Known && t.reader.RangeDeletions > uint64(len(t.reader.Ranges))
}

// missingDeletions is how many there are at most that could not be read.
func (t *tableSource) missingDeletions() uint64 {
	if t.reader == nil || !t.reader.Known || t.rangesMissing() {
		return math.MaxUint64
	}
	return t.reader.Deletions - min(t.deletions+uint64(len(t.reader.Ranges)), t.reader.Deletions)
}

// sources are tables by the key that each is at, the newest version first.
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
func (s *sources) Push(x any) { *s = append(*s, x.(*tableSource)) } //nolint:forcetypeassert // it is heap's

// Pop implements heap.Interface.
func (s *sources) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// merge puts what is left of a family into the new store.
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

// familyMerge is the merge of one family.
type familyMerge struct {
	*salvage
	family storage.Family
	logs   *logged
	keys   []string // of the logs, what is left
	heap   sources
	// cover is of range deletions as tables see them, coverLogs as logs do.
	cover, coverLogs cover
}

// step takes the least key, with all its versions.
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
		if !op.put || m.coverLogs.over(key) > op.sequence {
			return nil
		}
		return m.emit(key, op.value, op.sequence)
	}
	if newest.Kind != files.Put || m.cover.over(key) > newest.Sequence {
		return nil
	}
	return m.emit(key, newest.Value, newest.Sequence)
}

// emit keeps a record, and counts the messages that what is lost could have been about.
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

// cover answers by which range deletion a key was last deleted.
type cover struct {
	from []files.Entry // stretches that do not overlap, in order; Sequence is the newest
}

// newCover cuts range deletions into stretches that do not overlap.
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

// over is the number of the newest deletion of a range that a key is in; 0: there is
// none.
func (c cover) over(key []byte) uint64 {
	i, found := slices.BinarySearchFunc(c.from, key, func(e files.Entry, k []byte) int { return bytes.Compare(e.Key, k) })
	if !found {
		i--
	}
	if i < 0 || bytes.Compare(key, c.from[i].Value) >= 0 {
		return 0
	}
	return c.from[i].Sequence
}

// newestFirst is a heap of range deletions.
type newestFirst []files.Entry

func (n *newestFirst) Len() int           { return len(*n) }
func (n *newestFirst) Swap(i, j int)      { (*n)[i], (*n)[j] = (*n)[j], (*n)[i] }
func (n *newestFirst) Less(i, j int) bool { return cmp.Less((*n)[j].Sequence, (*n)[i].Sequence) }

// Push implements heap.Interface.
func (n *newestFirst) Push(x any) { *n = append(*n, x.(files.Entry)) } //nolint:forcetypeassert // it is heap's

// Pop implements heap.Interface.
func (n *newestFirst) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}
