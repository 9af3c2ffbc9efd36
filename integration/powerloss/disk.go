// Package powerloss simulates power cuts on a broker's data directory. A small library, preloaded
// into the broker, records which data was synced (see shim/shim.c). After the process was killed,
// Cut rebuilds the directory as a disk might have kept it: all synced data, and a random part of
// the rest. The library can also simulate a full disk or failing syncs.
//
// The library intercepts calls of libc only, so it does not see the few files that the broker
// writes from Go; they contain no acknowledged data.
package powerloss

import (
	"bytes"
	_ "embed" // the library's source
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed shim/shim.c
var shim string

// Disk is the data directory of one broker. It is not safe for concurrent use.
type Disk struct {
	data    string
	library string
	journal string
	grave   string
	fault   string
	base    map[string]uint64 // files at the start of the process, all durable
	sizes   map[uint64]int64
	inode   uint64 // of the directory at the start of the process; 0: there was none

	// Scatter makes Cut keep arbitrary pages of unsynced data, and zeros in place of the others,
	// like a disk that reorders writes. Otherwise Cut keeps a prefix, except of what is written over
	// zeros: of that a disk may keep any sectors.
	Scatter bool
}

// New prepares a disk for a data directory, which need not exist. Its files are below work, which
// must be on the same file system. It requires gcc.
func New(work, data string) (*Disk, error) {
	at := func(name string) string { return filepath.Join(work, name) }
	d := &Disk{data: data, library: at("shim.so"), journal: at("shim.journal"), grave: at("shim.grave"), fault: at("shim.fault")}
	source := at("shim.c")
	if err := os.WriteFile(source, []byte(shim), 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", d.library, source, "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc: %w: %s", err, out)
	}
	if err := d.Heal(); err != nil {
		return nil, err
	}
	return d, nil
}

// Env returns the environment variables that the broker needs in addition.
func (d *Disk) Env() []string {
	return []string{
		"LD_PRELOAD=" + d.library, "POWERLOSS_DIR=" + d.data, "POWERLOSS_JOURNAL=" + d.journal, "POWERLOSS_GRAVE=" + d.grave,
		"POWERLOSS_FAULT=" + d.fault,
	}
}

// Fill makes writes fail for lack of space.
func (d *Disk) Fill() error { return os.WriteFile(d.fault, []byte("f"), 0o600) }

// Break makes syncs fail.
func (d *Disk) Break() error { return os.WriteFile(d.fault, []byte("e"), 0o600) }

// Heal ends Fill and Break.
func (d *Disk) Heal() error { return os.WriteFile(d.fault, nil, 0o600) }

// Begin must be called before each start of the process: it considers all existing data durable.
func (d *Disk) Begin() error {
	for _, path := range []string{d.journal, d.grave} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := os.Mkdir(d.grave, 0o700); err != nil {
		return err
	}
	var err error
	if d.inode, err = inodeOf(d.data); err != nil {
		return err
	}
	d.base, d.sizes, err = list(d.data)
	return err
}

// Replaced reports whether the process has put another directory in the place of the data, or is about to:
// what Cut knows is about the files of the earlier one.
func (d *Disk) Replaced() (bool, error) {
	now, err := inodeOf(d.data)
	return d.inode != 0 && now != d.inode, err
}

// inodeOf returns the inode of a directory, 0 if it is missing.
func inodeOf(dir string) (uint64, error) {
	info, err := os.Stat(dir)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: no inode", dir)
	}
	return s.Ino, nil
}

// list returns the inodes of the names in a directory, and their sizes. A missing directory counts
// as empty.
func list(dir string) (map[string]uint64, map[uint64]int64, error) {
	names, sizes := map[string]uint64{}, map[uint64]int64{}
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, nil, err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil, nil, fmt.Errorf("%s: no inode", e.Name())
		}
		names[e.Name()], sizes[s.Ino] = s.Ino, info.Size()
	}
	return names, sizes, nil
}

// Loss counts what a cut has taken.
type Loss struct {
	Bytes   int64 // unsynced bytes lost, including those of lost files
	Entries int   // unsynced changes of the directory lost
	Torn    int   // files that end within unsynced data
}

// Add adds another loss.
func (l *Loss) Add(m Loss) {
	l.Bytes += m.Bytes
	l.Entries += m.Entries
	l.Torn += m.Torn
}

// Cut rebuilds the directory as a power cut at the end of the process may have left it. The process
// must have ended.
func (d *Disk) Cut(chance *rand.Rand) (Loss, error) {
	text, err := os.ReadFile(d.journal)
	if err != nil && !os.IsNotExist(err) { // the process may have ended before its first record
		return Loss{}, err
	}
	j := newJournal(d.base, d.sizes)
	if err := j.read(string(text)); err != nil {
		return Loss{}, err
	}
	var loss Loss
	loss.Entries = j.chooseEntries(chance)
	current, sizes, err := list(d.data)
	if err != nil {
		return Loss{}, err
	}
	where := map[uint64]string{}
	for name, inode := range current {
		if where[inode] = filepath.Join(d.data, name); strings.HasPrefix(name, sparePrefix) {
			delete(sizes, inode)
		}
	}
	for _, inode := range j.durable {
		delete(sizes, inode)
	}
	for _, size := range sizes { // of unlinked files
		loss.Bytes += size
	}
	after := d.data + ".after"
	if err := os.Mkdir(after, 0o750); err != nil {
		return Loss{}, err
	}
	defer os.RemoveAll(after) // after a failure
	for name, inode := range j.durable {
		from := where[inode]
		if from == "" {
			from = filepath.Join(d.grave, fmt.Sprint(inode))
		}
		to := filepath.Join(after, name)
		loss := &loss
		if strings.HasPrefix(filepath.Base(from), sparePrefix) {
			loss = &Loss{} // a former log that is being filled with zeros
		}
		if before, over := j.over[inode]; over {
			err = keepOver(from, to, j.sizes[inode], before, chance, loss)
		} else {
			err = keep(from, to, j.sizes[inode], chance, d.Scatter, loss)
		}
		if err != nil {
			return Loss{}, err
		}
	}
	if err := os.RemoveAll(d.data); err != nil {
		return Loss{}, err
	}
	return loss, os.Rename(after, d.data)
}

// keep copies the synced data of a file, and none, all or a part of the rest.
func keep(from, to string, synced int64, chance *rand.Rand, scatter bool, loss *Loss) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	synced = min(synced, size)
	kept := synced
	var holes []int64 // offsets of lost pages
	if rest := size - synced; rest > 0 {
		switch chance.IntN(4) {
		case 0:
		case 1:
			kept = size
		case 2:
			if scatter {
				kept, holes = size, scattered(synced, size, page, chance)
				loss.Torn++
				break
			}
			fallthrough
		default:
			kept += chance.Int64N(rest)
			loss.Torn++
		}
	}
	loss.Bytes += size - kept
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(out, in, kept); err != nil {
		return err
	}
	for _, at := range holes {
		n := min(at/page*page+page, size) - at
		if _, err := out.WriteAt(make([]byte, n), at); err != nil {
			return err
		}
		loss.Bytes += n
	}
	return out.Close()
}

// keepOver copies a file that was written over zeros: the synced data, and of the rest none, all, the
// beginning or some sectors, with zeros for what is lost. If nothing behind the length that the file had
// before was synced, that may be its length again.
func keepOver(from, to string, synced, before int64, chance *rand.Rand, loss *Loss) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	written := int64(len(bytes.TrimRight(b, "\x00")))
	if rest := written - synced; rest > 0 {
		kept := synced
		switch chance.IntN(4) {
		case 0:
		case 1:
			kept = written
		case 2:
			kept = max((synced+chance.Int64N(rest))/sector*sector, synced)
			loss.Torn++
		default:
			kept = written
			for _, at := range scattered(synced, written, sector, chance) {
				n := min(at/sector*sector+sector, written) - at
				clear(b[at : at+n])
				loss.Bytes += n
			}
			loss.Torn++
		}
		clear(b[kept:written])
		loss.Bytes += written - kept
	}
	if synced <= before && before < int64(len(b)) && chance.IntN(4) == 0 {
		loss.Bytes += int64(len(bytes.TrimRight(b[before:], "\x00")))
		b = b[:before]
	}
	return os.WriteFile(to, b, 0o640)
}

// sparePrefix begins the names of files of zeros, which may become logs; shim.c knows it, too.
const sparePrefix = "fila-spare-"

// The units that a disk keeps or loses.
const (
	page   = 4096
	sector = 512
)

// scattered chooses the lost units within a range of a file and returns the offset of the lost part
// of each.
func scattered(from, to, unit int64, chance *rand.Rand) (gone []int64) {
	for few := 1 + chance.IntN(9); from < to; from = from/unit*unit + unit {
		if chance.IntN(10) < few {
			gone = append(gone, from)
		}
	}
	return gone
}
