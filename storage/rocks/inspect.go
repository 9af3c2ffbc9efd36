package rocks

import (
	"errors"
	"fmt"
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

// Inspection is a store that is looked at and not changed, whatever state it is in.
// Nobody can open it meanwhile. It is not safe for concurrent use.
type Inspection struct {
	// Store has what can be read; nil if the lists of files cannot be, or what leads to
	// the data of a table.
	Store *Store
	// Tables are the table files that belong to the store; all there are where the
	// list of them is damaged.
	Tables []Table
	// Damage is what was found without reading the tables.
	Damage []Damage
	// Fatal says that the broker would not start over Damage.
	Fatal bool

	path   string
	survey *survey
	listed bool // the list of tables can be read
	unlock func()
}

// Table is a table file.
type Table struct {
	File        string
	Family      string
	Bytes       int64
	Entries     uint64
	First, Last []byte // keys; nil where they are not known
}

// Damage is a file, or a part of one, that is not what was written.
type Damage struct {
	File        string
	Family      string // of a table, where it is known
	First, Last []byte // keys of a table, where they are known
	Entries     uint64 // of a table, where it is known
	What        string
	missing     bool // there is no such file
}

// Inspect opens a directory for looking. It fails if there is no store, if a broker has
// it open, and if a newer Fila wrote it; damage is what it is for.
func Inspect(path string) (*Inspection, error) {
	path = filepath.Clean(path)
	i, err := inspect(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return i, nil
}

func inspect(path string) (*Inspection, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, reason(err)
	}
	if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return ours(e.Name()) }) {
		return nil, errors.New("there is no store in it")
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

// ours tells whether a file makes a directory a store.
func ours(name string) bool {
	return name == currentFile || strings.HasPrefix(name, "MANIFEST-") || filepath.Ext(name) == ".sst"
}

// open tries to read the store as the broker would, then with ever less care.
func (i *Inspection) open() error {
	_, err := checkFiles(i.path)
	var surveyErr error
	if i.survey, surveyErr = surveyStore(i.path); surveyErr != nil {
		return surveyErr
	}
	if i.survey.closed {
		// RocksDB does not survive to open such a table, or to read it.
		i.Damage, i.Fatal = i.survey.damage, true
		return i.listTables()
	}
	var d *database
	if err == nil {
		d, err = openReadOnly(i.path, true, grocksdb.TolerateCorruptedTailRecordsRecovery)
	}
	if errors.Is(err, storage.ErrFormat) {
		return err
	}
	i.Damage = i.survey.damage
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

// listTables takes the tables that MANIFEST lists.
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
				File: files.TableName(n), Family: f.Name, Bytes: int64(t.Size), First: t.First, Last: t.Last, //nolint:gosec // of a file
			})
		}
	}
	return nil
}

// culprit is the file that an error of RocksDB speaks of, or the one that says where all
// others are.
func (i *Inspection) culprit(err error) string {
	for word := range strings.FieldsFuncSeq(err.Error(), func(r rune) bool { return strings.ContainsRune(" /:,;'\"", r) }) {
		if ours(word) || filepath.Ext(word) == ".log" {
			return word
		}
	}
	if i.survey.name == "" {
		return currentFile
	}
	return i.survey.name
}

// listFiles takes all table files there are, as the list of them cannot be read.
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

// VerifyTables reads every table as a whole and returns those that are damaged. It
// tells of each that it has done.
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

func (i *Inspection) verifyTable(t *Table) error {
	file := filepath.Join(i.path, t.File)
	info, err := os.Stat(file)
	if err != nil {
		return reason(err)
	}
	if info.Size() != t.Bytes {
		return fmt.Errorf("%w: it has %d bytes instead of %d", storage.ErrCorrupt, info.Size(), t.Bytes)
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

// Close lets go of the directory.
func (i *Inspection) Close() {
	if i.Store != nil {
		_ = i.Store.Close() // it was only read
		i.Store = nil
	}
	if i.unlock != nil {
		i.unlock()
		i.unlock = nil
	}
}

// openReadOnly opens what there is of a store. Careful is as the broker does it.
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
			return nil, fmt.Errorf("%w: it has a family %q", storage.ErrFormat, name)
		}
		options[n] = o
	}
	db, handles, err := grocksdb.OpenDbForReadOnlyColumnFamilies(o, path, names, options, false)
	if err != nil {
		return nil, openError(err)
	}
	d := &database{db: db, families: make([]*grocksdb.ColumnFamilyHandle, len(known)), read: grocksdb.NewDefaultReadOptions()}
	for n, name := range names {
		d.families[known[name]] = handles[n]
	}
	return d, nil
}

// inspectFiles bounds how many files are open at a time.
const inspectFiles = 256

// lockStore keeps brokers from opening the store, as RocksDB does it. A backup has no
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
	return func() { _ = f.Close() }, nil // closing it is unlocking it
}
