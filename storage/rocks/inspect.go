//go:build cgo

package rocks

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks/files"
)

// Inspection is read-only access to a store in any condition. It holds the lock of the store, so no
// broker can open it meanwhile. It is not safe for concurrent use.
//
// How much of the store it can use depends on what is damaged, from the least to the most:
//
//	condition                                   Store       Tables from
//	intact                                      complete    RocksDB
//	the log ends torn                           as the broker RocksDB
//	                                            would cut it
//	the broker would refuse it                  readable    RocksDB, if necessary without paranoid checks
//	a table on which RocksDB would terminate    nil         MANIFEST, as the survey read it
//	the lists of files are damaged              nil         the directory
//
// Fatal tells the first from the others.
type Inspection struct {
	// Store reads the intact records. It is nil if the lists of files, or the metadata of a table,
	// cannot be read.
	Store *Store
	// Tables are the live table files, or all table files if the list of them is damaged.
	Tables []Table
	// Damage was found without reading the contents of tables.
	Damage []Damage
	// Fatal means that Damage keeps the broker from starting.
	Fatal bool
	// Torn is what is wrong with the end of the log, which the broker cuts off when it starts: no
	// damage. Nothing there was acknowledged, or the node of a cluster has it in the replicated log.
	// Empty: nothing.
	Torn string

	path   string
	survey *survey
	listed bool // MANIFEST, which lists the tables, is readable
	unlock func()
	view   string // directory with the store as it is without its torn end; empty: none
}

// Inspect opens a store for inspection and repair. It fails if path holds no store, if a broker has
// it open, or if a newer version wrote it; it does not fail because of damage.
func Inspect(path string) (*Inspection, error) {
	path = filepath.Clean(path)
	i, err := inspect(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return i, nil
}

// inspect takes the lock of the store and opens it.
func inspect(path string) (*Inspection, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, reason(err)
	}
	if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return marksStore(e.Name()) }) {
		return nil, errors.New("the directory contains no store")
	}
	unlock, err := lockStore(path)
	if err != nil {
		return nil, err
	}
	i := &Inspection{path: path, unlock: unlock}
	if err := i.open(); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// marksStore reports whether a file name shows that a directory holds a store.
func marksStore(name string) bool {
	return name == currentFile || strings.HasPrefix(name, "MANIFEST-") || filepath.Ext(name) == ".sst"
}

// open opens the store as the broker would, and with weaker checks if that fails.
func (i *Inspection) open() error {
	_, err := checkFiles(i.path)
	var surveyErr error
	if i.survey, surveyErr = surveyStore(i.path); surveyErr != nil {
		return surveyErr
	}
	if i.survey.closed {
		// RocksDB terminates the process when it opens or reads such a table.
		i.Damage, i.Fatal = i.survey.damage, true
		return i.listTables()
	}
	var d *database
	if err == nil {
		d = i.openTorn()
	}
	if d == nil && err == nil {
		d, err = openReadOnly(i.path, true, grocksdb.TolerateCorruptedTailRecordsRecovery)
	}
	if errors.Is(err, storage.ErrFormat) {
		return err
	}
	if i.Torn == "" {
		i.Damage = i.survey.damage
	}
	i.Fatal = err != nil || len(i.Damage) > 0
	if err != nil {
		if len(i.Damage) == 0 {
			i.Damage = append(i.Damage, Damage{File: i.culprit(err), What: err.Error()})
		}
		d, err = openReadOnly(i.path, false, grocksdb.SkipAnyCorruptedRecordsRecovery)
	}
	if err != nil {
		return i.listFiles()
	}
	i.listed = true
	i.Store = newStore(i.path, profile{}, d)
	families := d.tableFamilies()
	for _, m := range d.db.GetLiveFilesMetaData() {
		name := strings.TrimPrefix(m.Name, "/")
		i.Tables = append(i.Tables, Table{
			File: name, Family: families[name], Bytes: m.Size, Entries: m.Entries, First: m.SmallestKey, Last: m.LargestKey,
		})
	}
	return nil
}

// openTorn opens a store whose log is torn, as it is without the torn end. It returns nil if that is
// not the condition of the store.
func (i *Inspection) openTorn() *database {
	l := i.survey.lastDamaged()
	if l == nil {
		return nil
	}
	view, err := viewOf(i.path, l)
	if err != nil {
		return nil // what is torn counts as damage then
	}
	d, err := openReadOnly(view, true, grocksdb.TolerateCorruptedTailRecordsRecovery)
	if err == nil {
		var version uint64
		version, err = storage.FormatOf(d.get)
		rest := ""
		switch {
		case err != nil:
		case version == storage.ReplicaFormatVersion:
			rest = "the node cuts it off when it starts, and has the rest in the replicated log"
		case l.torn():
			rest = "the broker cuts it off when it starts, and nothing behind was synced"
		}
		if rest != "" {
			i.view = view
			i.Torn = fmt.Sprintf("%s is torn at offset %d, as a loss of power leaves it: %s", l.name, l.whole, rest)
			return d
		}
		d.close()
	}
	_ = os.RemoveAll(view) // in the system's temporary directory
	return nil
}

// viewOf makes a directory that shows a store with a log that ends before its damage. Nothing is written
// to the store.
func viewOf(path string, cut *surveyedLog) (view string, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	if view, err = os.MkdirTemp("", "fila-check-"); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(view)
		}
	}()
	for _, e := range entries {
		if name := e.Name(); name != cut.name && name != "LOCK" {
			if err := os.Symlink(filepath.Join(path, name), filepath.Join(view, name)); err != nil {
				return "", err
			}
		}
	}
	from, err := os.Open(filepath.Join(path, cut.name)) //nolint:gosec // a file of the store
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(view, cut.name)) //nolint:gosec // within a directory of its own
	if err != nil {
		return "", err
	}
	_, err = io.CopyN(to, from, cut.whole)
	return view, errors.Join(err, to.Close())
}

// listTables takes the live tables from MANIFEST.
func (i *Inspection) listTables() error {
	m := i.survey.manifest
	if !m.Whole {
		return i.listFiles()
	}
	i.listed = true
	for _, f := range m.Families {
		for _, n := range slices.Sorted(maps.Keys(f.Tables)) {
			t := f.Tables[n]
			i.Tables = append(i.Tables, Table{
				File: files.TableName(n), Family: f.Name, Bytes: int64(t.Size), First: t.First, Last: t.Last,
			})
		}
	}
	return nil
}

// culprit returns the file that an error of RocksDB names, or else MANIFEST, which leads to all
// others.
func (i *Inspection) culprit(err error) string {
	for word := range strings.FieldsFuncSeq(err.Error(), func(r rune) bool { return strings.ContainsRune(" /:,;'\"", r) }) {
		if marksStore(word) || filepath.Ext(word) == ".log" {
			return word
		}
	}
	if i.survey.name == "" {
		return currentFile
	}
	return i.survey.name
}

// listFiles takes all table files of the directory, because the list of them cannot be read.
func (i *Inspection) listFiles() error {
	files, err := filepath.Glob(filepath.Join(i.path, "*.sst"))
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return reason(err)
		}
		i.Tables = append(i.Tables, Table{File: filepath.Base(file), Bytes: info.Size()})
	}
	return nil
}

// VerifyTables reads all tables completely and returns the damaged ones. done is called after each
// table.
func (i *Inspection) VerifyTables(done func(t *Table)) []Damage {
	var all []Damage
	for n := range i.Tables {
		t := &i.Tables[n]
		if err := i.verifyTable(t); err != nil {
			all = append(all, Damage{File: t.File, Family: t.Family, First: t.First, Last: t.Last, Entries: t.Entries, What: err.Error()})
		}
		done(t)
	}
	return all
}

// verifyTable checks size, metadata and the checksum of every block.
func (i *Inspection) verifyTable(t *Table) error {
	file := filepath.Join(i.path, t.File)
	info, err := os.Stat(file)
	if err != nil {
		return reason(err)
	}
	if info.Size() != t.Bytes {
		return fmt.Errorf("%w: size is %d bytes instead of %d", storage.ErrCorrupt, info.Size(), t.Bytes)
	}
	if err := files.CheckTable(file, unzstd); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, reason(err))
	}
	r, err := openTable(file)
	if err != nil {
		return err
	}
	defer r.close()
	t.Entries, t.Family = r.entries, r.family
	return r.verify()
}

// Close closes the store and releases its lock. Further calls do nothing.
func (i *Inspection) Close() {
	if i.Store != nil {
		_ = i.Store.Close() // nothing was written
		i.Store = nil
	}
	if i.view != "" {
		_ = os.RemoveAll(i.view) // in the system's temporary directory
		i.view = ""
	}
	if i.unlock != nil {
		i.unlock()
		i.unlock = nil
	}
}

// openReadOnly opens a store read-only. careful enables RocksDB's paranoid checks, as the broker
// does.
func openReadOnly(path string, careful bool, logs grocksdb.WALRecoveryMode) (*database, error) {
	o := grocksdb.NewDefaultOptions()
	defer o.Destroy()
	o.SetParanoidChecks(careful)
	o.SetWALRecoveryMode(logs)
	o.SetMaxOpenFiles(inspectFiles)
	logInto(o, path)
	names, err := grocksdb.ListColumnFamilies(o, path)
	if err != nil {
		return nil, openError(err)
	}
	known := map[string]storage.Family{}
	for _, f := range storage.Families() {
		known[f.String()] = f
	}
	options := make([]*grocksdb.Options, len(names))
	for n, name := range names {
		if _, ok := known[name]; !ok {
			return nil, fmt.Errorf("%w: unknown column family %q", storage.ErrFormat, name)
		}
		options[n] = o
	}
	db, handles, err := grocksdb.OpenDbForReadOnlyColumnFamilies(o, path, names, options, false)
	if err != nil {
		return nil, openError(err)
	}
	d := &database{db: db, families: make([]*grocksdb.ColumnFamilyHandle, len(known))}
	d.setReadOptions()
	for n, name := range names {
		d.families[known[name]] = handles[n]
	}
	return d, nil
}

// inspectFiles bounds how many table files an inspection keeps open.
const inspectFiles = 256

// lockStore takes RocksDB's lock of the store, which keeps brokers from opening it. A backup has no
// lock file and needs none.
func lockStore(path string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(path, "LOCK"), os.O_RDWR, 0) //nolint:gosec // below the directory that the operator chose
	if errors.Is(err, os.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, reason(err)
	}
	whole := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &whole); err != nil {
		_ = f.Close() // nothing was written
		return nil, storage.ErrLocked
	}
	return func() { _ = f.Close() }, nil // closing the file releases the lock
}
