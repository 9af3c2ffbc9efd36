package powerloss

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
)

// journal is the parsed record of the library: the durable names, the durable size of each file,
// and the changes of the directory that are not durable.
type journal struct {
	durable map[string]uint64
	sizes   map[uint64]int64 // durable bytes by inode
	over    map[uint64]int64 // of the logs that are written over zeros: their length but for the newest of these
	changes []change         // all, in order; the durable ones are applied
	syncs   map[uint64]begun
}

type change struct {
	kind     byte // C, R or U
	inode    uint64
	from, to string
	applied  bool
}

// begun is a sync in progress: of a file with its size at the start, or of the directory with the
// number of changes before it.
type begun struct {
	inode   uint64
	size    int64
	changes int
}

func newJournal(base map[string]uint64, sizes map[uint64]int64) *journal {
	return &journal{durable: maps.Clone(base), sizes: maps.Clone(sizes), over: map[uint64]int64{}, syncs: map[uint64]begun{}}
}

func (j *journal) read(text string) error {
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break // the process was killed while writing the record
		}
		if err := j.line(strings.TrimSuffix(line, "\n")); err != nil {
			return fmt.Errorf("journal: %q: %w", line, err)
		}
	}
	return nil
}

func (j *journal) line(line string) error {
	var number, inode uint64
	var size, at int64
	var c change
	var err error
	switch c.kind = (line + " ")[0]; c.kind {
	case 'C', 'U':
		_, err = fmt.Sscanf(line[1:], "%d %s", &c.inode, &c.to)
		j.changes = append(j.changes, c)
	case 'R':
		_, err = fmt.Sscanf(line[1:], "%d %s %s", &c.inode, &c.from, &c.to)
		j.changes = append(j.changes, c)
		delete(j.over, c.inode)
	case 'P':
		_, err = fmt.Sscanf(line[1:], "%d %d", &inode, &size)
		if j.sizes[inode] < size {
			return fmt.Errorf("only %d bytes of the zeros were synced", j.sizes[inode])
		}
		j.over[inode], j.sizes[inode] = size, 0
	case 'L':
		_, err = fmt.Sscanf(line[1:], "%d %d %d", &inode, &at, &size)
		j.over[inode] = at
	case 'F':
		_, err = fmt.Sscanf(line[1:], "%d %d %d", &number, &inode, &size)
		j.syncs[number] = begun{inode: inode, size: size}
	case 'D':
		_, err = fmt.Sscanf(line[1:], "%d", &number)
		j.syncs[number] = begun{changes: len(j.changes)}
	case 'S':
		_, err = fmt.Sscanf(line[1:], "%d", &number)
		j.ended(j.syncs[number])
		delete(j.syncs, number)
	case 'O':
		_, err = fmt.Sscanf(line[1:], "%d %d %d", &inode, &at, &size)
		j.sizes[inode] = min(j.sizes[inode], at)
	default:
		err = fmt.Errorf("unknown record")
	}
	return err
}

func (j *journal) ended(s begun) {
	if s.inode != 0 {
		j.sizes[s.inode] = max(j.sizes[s.inode], s.size)
		return
	}
	for i := range j.changes[:s.changes] {
		j.apply(&j.changes[i])
	}
}

func (j *journal) apply(c *change) {
	if c.applied {
		return
	}
	c.applied = true
	switch c.kind {
	case 'C':
		j.durable[c.to] = c.inode
	case 'R':
		if j.durable[c.from] == c.inode {
			delete(j.durable, c.from)
		}
		j.durable[c.to] = c.inode
	case 'U':
		if j.durable[c.to] == c.inode {
			delete(j.durable, c.to)
		}
	}
}

// chooseEntries chooses the unsynced changes that the disk has kept: none, a prefix, or any subset.
// It returns the number of lost ones.
func (j *journal) chooseEntries(chance *rand.Rand) (gone int) {
	var open []*change
	for i := range j.changes {
		if !j.changes[i].applied {
			open = append(open, &j.changes[i])
		}
	}
	how, upto := chance.IntN(3), chance.IntN(len(open)+1)
	for i, c := range open {
		if how == 1 && i < upto || how == 2 && chance.IntN(2) == 0 {
			j.apply(c)
		} else {
			gone++
		}
	}
	return gone
}
