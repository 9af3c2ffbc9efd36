package powerloss

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Log is the directory of the replicated log of one node. A broker that is built with the tag fault
// notes in a journal what it is about to write over and what it has synced
// (internal/cluster/disk_fault.go):
//
//	record   kind 1 | number 8 | offset 8 | length of the name 2 | length of the bytes 4 | name | bytes
//
//	C  a file is about to be made
//	U  a file is about to be removed; it has a second name in the grave
//	W  at an offset of a file, other bytes are about to be written over these
//	F  the sync with this number begins, of a file
//	D  the sync with this number begins, of the directory
//	S  the sync with this number has ended well
//
// It does not see the database with the metadata of the log, in which each change is synced before it
// is reported: that is left as the process has left it.
type Log struct {
	dir     string
	journal string
	grave   string

	// Scatter is as in Disk.
	Scatter bool
}

// NewLog prepares a log whose directory need not exist. The journal is below work, on the same file
// system.
func NewLog(work, dir string) *Log {
	return &Log{dir: dir, journal: filepath.Join(work, "log.journal"), grave: filepath.Join(work, "log.grave")}
}

// Env returns the environment variables that the broker needs in addition.
func (l *Log) Env() []string {
	return []string{"POWERLOSS_LOG=" + l.journal, "POWERLOSS_LOG_GRAVE=" + l.grave}
}

// Begin must be called before each start of the process: it considers all existing data durable.
func (l *Log) Begin() error {
	return errors.Join(os.RemoveAll(l.journal), os.RemoveAll(l.grave), os.Mkdir(l.grave, 0o700))
}

// Seen reports whether the process has noted anything.
func (l *Log) Seen() (bool, error) {
	info, err := os.Stat(l.journal)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}

// overwrite is a write that is not synced.
type overwrite struct {
	at  int64
	old []byte
}

// entry is a change of the directory that is not synced.
type entry struct {
	made bool // else removed
	name string
}

// pending is what is not synced when the process has ended.
type pending struct {
	writes  map[string][]overwrite
	gone    map[string]int // by file: writes that were dropped from the front of writes
	entries []entry
	settled int // entries that were dropped from the front
	syncs   map[uint64]mark
}

// mark is where a sync has begun.
type mark struct {
	name   string // of the file; "": the directory
	before int    // writes of the file, or entries, since the start of the process
}

// note takes one record.
func (p *pending) note(r record) error {
	switch r.kind {
	case 'C', 'U':
		p.entries = append(p.entries, entry{r.kind == 'C', r.name})
	case 'W':
		p.writes[r.name] = append(p.writes[r.name], overwrite{r.offset, r.bytes})
	case 'F':
		p.syncs[r.number] = mark{r.name, p.gone[r.name] + len(p.writes[r.name])}
	case 'D':
		p.syncs[r.number] = mark{"", p.settled + len(p.entries)}
	case 'S':
		m := p.syncs[r.number]
		delete(p.syncs, r.number)
		if m.name == "" {
			drop := max(m.before-p.settled, 0)
			p.entries, p.settled = p.entries[drop:], p.settled+drop
			break
		}
		drop := max(m.before-p.gone[m.name], 0)
		p.writes[m.name], p.gone[m.name] = p.writes[m.name][drop:], p.gone[m.name]+drop
	default:
		return fmt.Errorf("journal of the log: unknown record %q", r.kind)
	}
	return nil
}

// record is a record of the journal.
type record struct {
	kind   byte
	number uint64
	offset int64
	name   string
	bytes  []byte
}

const recordHead = 1 + 8 + 8 + 2 + 4

// readRecord returns io.EOF at the end, also within a record: the process was killed meanwhile.
func readRecord(from io.Reader) (r record, err error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return r, io.EOF
	}
	text := make([]byte, int(binary.BigEndian.Uint16(head[17:]))+int(binary.BigEndian.Uint32(head[19:])))
	if _, err := io.ReadFull(from, text); err != nil {
		return r, io.EOF
	}
	name := binary.BigEndian.Uint16(head[17:])
	return record{
		kind: head[0], number: binary.BigEndian.Uint64(head[1:]), offset: int64(binary.BigEndian.Uint64(head[9:])),
		name: string(text[:name]), bytes: text[name:],
	}, nil
}

// Cut changes the directory into what a power cut at the end of the process may have left. The process
// must have ended.
func (l *Log) Cut(chance *rand.Rand) (Loss, error) {
	f, err := os.Open(l.journal)
	if errors.Is(err, fs.ErrNotExist) {
		return Loss{}, nil // the process has ended before its first change
	}
	if err != nil {
		return Loss{}, err
	}
	defer f.Close()
	p := &pending{writes: map[string][]overwrite{}, gone: map[string]int{}, syncs: map[uint64]mark{}}
	for in := bufio.NewReader(f); ; {
		r, err := readRecord(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err := errors.Join(err, p.note(r)); err != nil {
			return Loss{}, err
		}
	}
	var loss Loss
	// What was removed comes back first, so that its writes can be undone.
	if err := l.undoEntries(p, chance, &loss); err != nil {
		return loss, err
	}
	for name, writes := range p.writes {
		if len(writes) == 0 {
			continue
		}
		if err := l.undoWrites(filepath.Join(l.dir, name), writes, chance, &loss); err != nil {
			return loss, err
		}
	}
	return loss, nil
}

// undoEntries undoes none, all, the last or some of the changes of the directory. A file whose making
// was not synced may be gone, empty, or have no contents.
func (l *Log) undoEntries(p *pending, chance *rand.Rand, loss *Loss) error {
	how, upto := chance.IntN(4), chance.IntN(len(p.entries)+1)
	for i, e := range p.entries {
		if how == 0 || how == 1 && i < upto || how == 2 && chance.IntN(2) == 0 {
			continue
		}
		path := filepath.Join(l.dir, e.name)
		info, err := os.Stat(path)
		there := err == nil
		loss.Entries++
		switch {
		case !e.made && !there:
			err = os.Link(filepath.Join(l.grave, e.name), path)
		case e.made && there:
			loss.Bytes += info.Size()
			delete(p.writes, e.name)
			switch chance.IntN(3) {
			case 0:
				err = os.Remove(path)
			case 1:
				err = os.Truncate(path, 0)
			default:
				err = errors.Join(os.Truncate(path, 0), os.Truncate(path, info.Size()))
			}
		default:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// undoWrites undoes none, all, the last or some pages of the writes of a file.
func (l *Log) undoWrites(path string, writes []overwrite, chance *rand.Rand, loss *Loss) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its removal was synced, or has happened
	}
	if err != nil {
		return err
	}
	defer f.Close()
	kept, how := 0, chance.IntN(4)
	if how == 0 {
		return nil
	}
	if how == 2 {
		kept = chance.IntN(len(writes))
	}
	pages := map[int64]bool{} // that are kept
	few := 1 + chance.IntN(9)
	loss.Torn++
	for i := len(writes) - 1; i >= kept; i-- {
		w := writes[i]
		from := int64(0)
		if how == 2 && i == kept { // torn in the middle
			from = chance.Int64N(int64(len(w.old)) + 1)
		}
		for from < int64(len(w.old)) {
			at := w.at + from
			n := min(at/page*page+page, w.at+int64(len(w.old))) - at
			if _, known := pages[at/page]; how == 3 && l.Scatter && !known {
				pages[at/page] = chance.IntN(10) >= few
			}
			if !pages[at/page] {
				if _, err := f.WriteAt(w.old[from:from+n], at); err != nil {
					return err
				}
				loss.Bytes += n
			}
			from += n
		}
	}
	return f.Sync()
}
