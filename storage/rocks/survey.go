package rocks

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks/files"
)

// This file looks at a store without RocksDB, before it is opened: whether all files
// are there, and whether MANIFEST and logs fit together. RocksDB opens a store without
// a word although
//
//   - a log file is missing, at either end or between two others
//   - a log was cut short, or has zeros in it, although more was written behind that
//   - MANIFEST was cut between two of its records, and so is that of an earlier time
//
// and where it does refuse, it mostly does not say which file it is about.
//
// All writes go through the log, and their sequence numbers have no gaps: so those of
// the logs that are needed follow each other. Which logs there have been is in a file of
// ours (sealed.cc), while MANIFEST says from which number on they are needed: one that
// was cut short asks for a log that is long gone, or for a table that is.

// logsFile is the list of logs, written whenever one is begun.
const logsFile = "fila-logs"

// survey is what the files of a store say.
type survey struct {
	path     string
	name     string          // of the MANIFEST; empty: CURRENT names none
	manifest *files.Manifest // nil: it cannot be read
	logs     []surveyedLog   // by number
	damage   []Damage
	closed   bool // a table cannot be opened
}

// surveyedLog is one log file.
type surveyedLog struct {
	name        string
	number      uint64
	needed      bool
	first, next uint64 // sequence numbers: of the first write, and behind the last; equal: there is none
}

// surveyStore looks at all that leads to the records of a store.
func surveyStore(path string) (*survey, error) {
	s := &survey{path: path}
	if err := s.readManifest(); err != nil {
		return nil, err
	}
	s.checkTables()
	if err := s.readLogs(); err != nil {
		return nil, err
	}
	if s.manifest != nil && s.manifest.Whole {
		s.checkLogs()
		s.checkFamilies()
	}
	return s, nil
}

// err says the first of the damage, for those that go no further.
func (s *survey) err() error {
	const most = 3
	if len(s.damage) == 0 {
		return nil
	}
	var all []string
	for _, d := range s.damage[:min(len(s.damage), most)] {
		all = append(all, d.File+": "+d.What)
	}
	if more := len(s.damage) - most; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w: %s", storage.ErrCorrupt, strings.Join(all, "; "))
}

func (s *survey) found(file, format string, args ...any) {
	s.damage = append(s.damage, Damage{File: file, What: fmt.Sprintf(format, args...)})
}

// lacks is found, of a file that is not there.
func (s *survey) lacks(file, format string, args ...any) {
	s.damage = append(s.damage, Damage{File: file, What: fmt.Sprintf(format, args...), missing: true})
}

// readManifest reads the MANIFEST that CURRENT names; where it names none, the newest
// that is whole.
func (s *survey) readManifest() error {
	current, err := os.ReadFile(filepath.Join(s.path, currentFile))
	name := strings.TrimSuffix(string(current), "\n")
	_, ok := number(name, manifestPrefix, "")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.found(currentFile, "it is missing")
	case err != nil:
		return reason(err)
	case !ok || name == string(current):
		s.found(currentFile, "it does not name a MANIFEST")
	default:
		s.name = name
		return s.parseManifest()
	}
	return s.newestManifest()
}

const manifestPrefix = "MANIFEST-"

func (s *survey) newestManifest() error {
	names, err := numbered(s.path, manifestPrefix, "")
	if err != nil {
		return err
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(names))) {
		if m, err := files.ReadManifest(filepath.Join(s.path, names[n])); err == nil && m.Whole {
			s.name, s.manifest = names[n], m
			return nil
		}
	}
	return nil
}

func (s *survey) parseManifest() error {
	m, err := files.ReadManifest(filepath.Join(s.path, s.name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.found(s.name, "it is missing, or %s is wrong, which names it", currentFile)
		return s.newestManifest()
	case err != nil:
		s.found(s.name, "%s", reason(err))
		return nil
	}
	s.manifest = m
	switch {
	case len(m.Damage) > 0:
		s.found(s.name, "wrong bytes at offset %d", m.Damage[0])
	case m.BadEnd >= 0:
		s.found(s.name, "the last record, at offset %d, does not match its checksum", m.BadEnd)
	case m.Records == 0:
		s.found(s.name, "there is no record in it")
	case m.Unread > 0:
		s.found(s.name, "%d of its %d records cannot be read", m.Unread, m.Records)
	}
	return nil
}

// checkTables looks whether the tables are there.
func (s *survey) checkTables() {
	if s.manifest == nil {
		return
	}
	for _, f := range s.manifest.Families {
		for _, n := range slices.Sorted(maps.Keys(f.Tables)) {
			t := f.Tables[n]
			info, err := os.Stat(filepath.Join(s.path, files.TableName(n)))
			what := ""
			switch {
			case errors.Is(err, fs.ErrNotExist):
				what = fmt.Sprintf("it is missing, or %s was cut short: it lists this table", s.name)
			case err != nil:
				what = reason(err).Error()
			case uint64(info.Size()) != t.Size: //nolint:gosec // of a file
				what = fmt.Sprintf("it has %d bytes instead of %d", info.Size(), t.Size)
			}
			if err == nil && what == "" {
				// RocksDB 7.8 opens tables when they are used, and ends the process
				// when an iterator is closed that could not open one.
				if err := files.CheckTable(filepath.Join(s.path, files.TableName(n)), unzstd); err != nil {
					what = reason(err).Error()
				}
			}
			if what != "" {
				s.closed = true
				s.damage = append(s.damage, Damage{File: files.TableName(n), Family: f.Name, First: t.First, Last: t.Last, What: what})
			}
		}
	}
}

// readLogs reads all log files, and notes damage in those that are needed.
func (s *survey) readLogs() error {
	names, err := numbered(s.path, "", ".log")
	if err != nil {
		return err
	}
	oldest := uint64(0)
	if s.manifest != nil && s.manifest.Whole {
		oldest = s.manifest.OldestLog()
	}
	expect := uint64(0)
	for _, n := range slices.Sorted(maps.Keys(names)) {
		l := surveyedLog{name: names[n], number: n, needed: n >= oldest}
		if l.needed {
			s.readLog(&l, &expect)
		}
		s.logs = append(s.logs, l)
	}
	return nil
}

// readLog reads a log. expect is the number that the next write should have.
func (s *survey) readLog(l *surveyedLog, expect *uint64) {
	batches := 0
	r, err := files.ReadLog(filepath.Join(s.path, l.name), func(at int64, batch []byte) error {
		first, n, err := files.Sequence(batch)
		if err != nil {
			s.found(l.name, "%s at offset %d", err, at)
			return nil
		}
		if *expect != 0 && first > *expect {
			s.gap(l, at, first-*expect)
		}
		if l.next == 0 {
			l.first = first
		}
		l.next = max(l.next, first+n)
		*expect = max(*expect, l.next)
		batches++
		return nil
	})
	if err != nil {
		s.found(l.name, "%s", reason(err))
		return
	}
	for _, at := range r.Damage {
		s.found(l.name, "wrong bytes at offset %d; %d batches of the file can be read", at, batches)
	}
	if r.BadEnd >= 0 {
		s.found(l.name, "the last batch, at offset %d, does not match its checksum; the %d before it can be read", r.BadEnd, batches)
	}
}

// gap notes writes that are missing before an offset of a log. Before the first one in it
// they were at the end of the log before it, or in one between the two.
func (s *survey) gap(l *surveyedLog, at int64, writes uint64) {
	if l.next != 0 || len(s.logs) == 0 {
		s.found(l.name, "%d writes are missing before offset %d", writes, at)
		return
	}
	s.found(s.logs[len(s.logs)-1].name, "%d writes are missing between its end and %s", writes, l.name)
}

// checkLogs looks for logs that are missing, and for a MANIFEST that is older than they
// are.
func (s *survey) checkLogs() {
	oldest, newest := s.manifest.OldestKept(), s.manifest.NewestLog()
	there := map[uint64]bool{}
	last := uint64(0)
	for _, l := range s.logs {
		there[l.number] = true
		last = max(last, l.number)
	}
	for _, n := range notedLogs(s.path) {
		if n >= oldest && !there[n] {
			s.lacks(files.LogName(n), "it is missing, or %s was cut short: it is of a time when this log was needed", s.name)
		}
	}
	if last < newest && !s.backup() {
		s.lacks(files.LogName(newest), "it, or the log that came after it, is missing: there is none with that number or a higher one")
	}
}

// checkFamilies looks whether MANIFEST knows all families that there are. RocksDB would
// make those that it lacks, and pass over what logs have of them.
func (s *survey) checkFamilies() {
	m := s.manifest
	most := m.MaxFamily
	for id := range m.Families {
		most = max(most, id)
	}
	if int(most)+1 != len(m.Families) {
		s.found(s.name, "it lists %d families, and not all that there are: it was cut short", len(m.Families))
		return
	}
	if len(m.Families) >= len(storage.Families()) {
		return
	}
	if most := s.familyInLogs(); int(most) >= len(m.Families) {
		s.found(s.name, "it lists %d families, and a log has records of family %d: it was cut short", len(m.Families), most)
	} else if table := s.strangeTable(); table != "" {
		s.found(s.name, "it lists %d families, and %s is of another: it was cut short", len(m.Families), table)
	}
}

// strangeTable is a table of a family that MANIFEST does not know; empty: there is none.
func (s *survey) strangeTable() string {
	names, err := numbered(s.path, "", ".sst")
	if err != nil {
		return ""
	}
	for _, name := range names {
		r, err := files.OpenTable(filepath.Join(s.path, name), unzstd)
		if err == nil && r.Known && s.manifest.Named(r.Name) == nil {
			return name
		}
	}
	return ""
}

// familyInLogs is the greatest number of a family that logs have records of.
func (s *survey) familyInLogs() storage.Family {
	most := storage.Default
	for _, l := range s.logs {
		_, _ = files.ReadLog(filepath.Join(s.path, l.name), func(_ int64, batch []byte) error { // it was read before
			clear(batch[:min(8, len(batch))])
			if b, err := storage.ParseBatch(batch); err == nil {
				return b.Each(func(r storage.Record) error {
					most = max(most, r.Family)
					return nil
				})
			}
			return nil
		})
	}
	return most
}

// backup tells whether nobody has ever written to this copy of a store: it has no
// list of logs, and may need none.
func (s *survey) backup() bool {
	_, err := os.Stat(filepath.Join(s.path, "LOCK"))
	return errors.Is(err, fs.ErrNotExist)
}

// notedLogs are the logs that there have been, as far as is known.
func notedLogs(path string) []uint64 {
	text, err := os.ReadFile(filepath.Join(path, logsFile)) //nolint:gosec // below the directory that the operator chose
	if err != nil {
		return nil // an older Fila wrote none
	}
	head, rest, _ := bytes.Cut(text, []byte("\n"))
	sum := fnv.New64a()
	_, _ = sum.Write(rest) // never fails
	if want := fmt.Sprintf("logs %016x", sum.Sum64()); string(head) != want {
		return nil // it was not written to its end
	}
	var all []uint64
	for line := range strings.Lines(string(rest)) {
		if n, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// numbered are the files of a directory whose names are a number between two strings.
func numbered(dir, before, behind string) (map[uint64]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, reason(err)
	}
	all := map[uint64]string{}
	for _, e := range entries {
		if n, ok := number(e.Name(), before, behind); ok {
			all[n] = e.Name()
		}
	}
	return all, nil
}

func number(name, before, behind string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, before)
	if !ok {
		return 0, false
	}
	if digits, ok = strings.CutSuffix(digits, behind); !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}
