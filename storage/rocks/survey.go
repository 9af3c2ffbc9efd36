//go:build cgo

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

// This file checks, without RocksDB and before an open, that all files of a store exist and that
// MANIFEST and logs are consistent. RocksDB silently opens a store although
//
//   - a log is missing, at either end or between two others,
//   - a log is truncated or has zeros in it, and more was written behind that,
//   - MANIFEST is truncated between two records and so describes an earlier state,
//
// and where it refuses to open one, it usually does not name the file.
//
// All writes go through the log with consecutive sequence numbers, so the numbers of the needed
// logs must be contiguous. The file fila-logs lists the logs that have existed (sealed.cc), and
// MANIFEST says from which number on they are needed: a truncated MANIFEST refers to a log or a
// table that was deleted long ago.

// The steps of a survey: readManifest, then checkTables for the files that MANIFEST lists, then
// readLogs for all logs, and, if MANIFEST is whole, checkLogs for the gaps between them and
// checkFamilies. No step changes a file, and each continues after damage, so that one survey names
// all of it.

// logsFile lists the logs. sealed.cc updates it whenever a log begins.
const logsFile = "fila-logs"

// survey is the result of the check.
type survey struct {
	path     string
	name     string          // of the MANIFEST in use; empty: none
	manifest *files.Manifest // nil: not readable
	logs     []surveyedLog   // by number
	damage   []Damage
	closed   bool // RocksDB cannot open one of the tables
}

// surveyedLog is one log file.
type surveyedLog struct {
	name        string
	number      uint64
	needed      bool
	first, next uint64 // sequence numbers [first, next) of its writes
	whole       int64  // bytes before the first damage, or before an end that RocksDB takes for that; -1: there is none
	synced      int64  // bytes that were surely synced when the last batch was written
	unkept      int64  // where the first damage is what a disk leaves that has not kept a write; -1: nowhere
	bytes       int64
}

// damaged notes damage at an offset.
func (l *surveyedLog) damaged(at int64) {
	if l.whole < 0 || at < l.whole {
		l.whole = at
	}
}

// surveyStore checks all metadata of the store in path. Damage is collected in the result; an error
// means that the directory itself cannot be read.
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

// err returns the first items of the damage as an ErrCorrupt of one line, or nil.
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

// found records damage of a file.
func (s *survey) found(file, format string, args ...any) {
	s.damage = append(s.damage, Damage{File: file, What: fmt.Sprintf(format, args...)})
}

// missing records damage of a file that does not exist.
func (s *survey) missing(file, format string, args ...any) {
	s.damage = append(s.damage, Damage{File: file, What: fmt.Sprintf(format, args...), missing: true})
}

// readManifest reads the MANIFEST that CURRENT names, or the newest intact one if CURRENT is
// damaged.
func (s *survey) readManifest() error {
	current, err := os.ReadFile(filepath.Join(s.path, currentFile))
	name := strings.TrimSuffix(string(current), "\n")
	_, ok := number(name, manifestPrefix, "")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.found(currentFile, "missing")
	case err != nil:
		return reason(err)
	case !ok || name == string(current):
		s.found(currentFile, "does not name a MANIFEST file")
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
		s.found(s.name, "missing, or named wrongly by %s", currentFile)
		return s.newestManifest()
	case err != nil:
		s.found(s.name, "%s", reason(err))
		return nil
	}
	s.manifest = m
	switch {
	case len(m.Damage) > 0:
		s.found(s.name, "corrupt at offset %d", m.Damage[0])
	case m.BadEnd >= 0:
		s.found(s.name, "checksum mismatch in the last record, at offset %d", m.BadEnd)
	case m.Records == 0:
		s.found(s.name, "contains no record")
	case m.Unread > 0:
		s.found(s.name, "%d of its %d records are unreadable", m.Unread, m.Records)
	case m.NextFile == 0: // RocksDB 8.9 writes an empty record first
		s.found(s.name, "truncated: it contains no number of the next file")
	}
	return nil
}

// checkTables checks existence, size and metadata of the live tables.
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
				what = fmt.Sprintf("missing, or %s, which lists it, is truncated", s.name)
			case err != nil:
				what = reason(err).Error()
			case uint64(info.Size()) != t.Size:
				what = fmt.Sprintf("size is %d bytes instead of %d", info.Size(), t.Size)
			}
			if err == nil && what == "" {
				// RocksDB 7.8 opens tables on first use, and terminates the process when an
				// iterator that failed to open one is closed.
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

// readLogs reads the needed logs and records their damage.
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
		l := surveyedLog{name: names[n], number: n, needed: n >= oldest, whole: -1, unkept: -1}
		if l.needed {
			s.readLog(&l, &expect)
		}
		s.logs = append(s.logs, l)
	}
	return nil
}

// readLog reads one log. expect is the sequence number that the next write must have; a higher one
// means that writes are missing.
func (s *survey) readLog(l *surveyedLog, expect *uint64) {
	batches, before := 0, gap{} // before the first of them
	r, err := files.ReadBatches(filepath.Join(s.path, l.name), func(b files.Batch, err error) error {
		at, first, n := b.At, b.First, b.Writes
		if err != nil {
			s.found(l.name, "%s at offset %d", err, at)
			l.damaged(at)
			return nil
		}
		l.synced = max(l.synced, b.Synced(l.number))
		switch missing := first - *expect; {
		case *expect == 0 || first <= *expect:
		case l.next == 0:
			before = gap{at, missing}
		default:
			s.missingBefore(l, gap{at, missing})
		}
		if l.next == 0 {
			l.first = first
		}
		l.next, *expect = max(l.next, first+n), max(*expect, first+n)
		batches++
		return nil
	})
	if err != nil {
		s.found(l.name, "%s", reason(err))
		return
	}
	switch {
	case before.writes == 0:
	case len(s.logs) > 0 && (len(r.Damage) == 0 || r.Damage[0] >= before.at):
		s.found(s.logs[len(s.logs)-1].name, "%d writes are missing between the end of this file and %s", before.writes, l.name)
	default: // damage is where they should be
		s.missingBefore(l, before)
	}
	for _, at := range r.Damage {
		l.damaged(at)
		s.found(l.name, "corrupt at offset %d; %d batches of the file are readable", at, batches)
	}
	if r.BadEnd >= 0 {
		l.damaged(r.BadEnd)
		s.found(l.name, "checksum mismatch in the last batch, at offset %d; the %d batches before it are readable", r.BadEnd, batches)
	}
	l.bytes, l.unkept = r.Bytes, r.Unkept
	if r.Open >= 0 {
		l.damaged(r.Open)
	}
}

// gap is a number of writes that are missing before an offset of a log.
type gap struct {
	at     int64
	writes uint64
}

// missingBefore records that writes of a log are missing.
func (s *survey) missingBefore(l *surveyedLog, g gap) {
	s.found(l.name, "%d writes are missing before offset %d", g.writes, g.at)
	l.damaged(g.at)
}

// checkLogs checks for missing logs and for a MANIFEST that is older than the logs.
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
			s.missing(files.LogName(n), "missing, or %s is truncated: it describes a state that needs this log", s.name)
		}
	}
	if last < newest && !s.backup() {
		s.missing(files.LogName(newest), "missing, or a later log is: no log has this or a higher number")
	}
}

// checkFamilies checks that MANIFEST lists all families. RocksDB would create a missing one and
// skip its records in the logs.
func (s *survey) checkFamilies() {
	m := s.manifest
	most := m.MaxFamily
	for id := range m.Families {
		most = max(most, id)
	}
	if int(most)+1 != len(m.Families) {
		s.found(s.name, "truncated: it lists only %d column families", len(m.Families))
		return
	}
	if len(m.Families) >= len(storage.Families()) {
		return
	}
	if most := s.familyInLogs(); int(most) >= len(m.Families) {
		s.found(s.name, "truncated: it lists %d column families, and a log has records of family %d", len(m.Families), most)
	} else if table := s.unknownTable(); table != "" {
		s.found(s.name, "truncated: it lists %d column families, and %s belongs to another", len(m.Families), table)
	}
}

// unknownTable returns a table of a family that MANIFEST does not list, or "".
func (s *survey) unknownTable() string {
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

// familyInLogs returns the highest family number in the logs.
func (s *survey) familyInLogs() storage.Family {
	most := storage.Default
	for _, l := range s.logs {
		_, _ = files.ReadBatches(filepath.Join(s.path, l.name), func(batch files.Batch, _ error) error { // read before, so it cannot fail
			if b, err := storage.AdoptBatch(batch.Records); err == nil {
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

// backup reports whether this is a copy of a store whose first opening was not completed: it has no
// list of logs and may need none.
func (s *survey) backup() bool {
	_, err := os.Stat(filepath.Join(s.path, logsFile))
	return errors.Is(err, fs.ErrNotExist)
}

// notedLogs returns the numbers of all logs that are known to have existed.
func notedLogs(path string) []uint64 {
	text, err := os.ReadFile(filepath.Join(path, logsFile)) //nolint:gosec // below the directory that the operator chose
	if err != nil {
		return nil // older versions wrote no list
	}
	head, rest, _ := bytes.Cut(text, []byte("\n"))
	sum := fnv.New64a()
	_, _ = sum.Write(rest) // never returns an error
	if want := fmt.Sprintf("logs %016x", sum.Sum64()); string(head) != want {
		return nil // incomplete write
	}
	var all []uint64
	for line := range strings.Lines(string(rest)) {
		if n, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// numbered returns the files of a directory named by a number between prefix and suffix.
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

// number parses the number of a file name between prefix and suffix.
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
