package rocks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

const (
	currentFile  = "CURRENT"      // RocksDB's: there is a database
	probePattern = "fila-probe-*" // written to see whether the disk takes writes, then removed
	probeChunk   = 1 << 20
)

// database is an open RocksDB and what was made for it.
type database struct {
	db       *grocksdb.DB
	families []*grocksdb.ColumnFamilyHandle // by storage.Family; nil: an older Fila did not have it, and nobody writes
	cache    *grocksdb.Cache
	cacheMax uint64
	read     *grocksdb.ReadOptions
	writer   *writer // nil: it is open for reading only
}

// Open opens a store, and makes it if the directory is new or empty. It fails
// with storage.ErrLocked, storage.ErrFormat or storage.ErrCorrupt where these
// say why, always in one line that names the directory.
func Open(o Options) (*Store, error) {
	p, err := profileOf(o)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	// Errors, and RocksDB's own log, then name the directory wherever they are read.
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Path, err)
	}
	return open(path, p)
}

func open(path string, p profile) (*Store, error) {
	o, err := openSomehow(path, p)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	s := newStore(path, p, o.d)
	s.became(o)
	return s, nil
}

func openDatabase(path string, p profile) (*database, error) {
	if err := prepareDirectory(path); err != nil {
		return nil, err
	}
	found, err := checkFiles(path)
	if err != nil {
		return nil, err
	}
	if found.database {
		if err := checkSurvey(path); err != nil {
			return nil, err
		}
		if err := checkFamilies(path, found); err != nil {
			return nil, err
		}
	}
	d, err := openFamilies(path, p, !found.database)
	if err != nil {
		return nil, err
	}
	if err := d.check(found); err != nil {
		d.close()
		return nil, err
	}
	removeProbes(path)
	listLogs(path)
	return d, nil
}

// checkSurvey refuses a store whose files do not fit together. It reads without
// RocksDB's lock: what another process changes meanwhile is no damage.
func checkSurvey(path string) error {
	s, err := surveyStore(path)
	if err != nil || len(s.damage) == 0 {
		return err
	}
	unlock, err := lockStore(path)
	if err != nil {
		return err
	}
	unlock()
	return s.err()
}

// prepareDirectory makes the directory if only that is missing, and finds out
// by trying whether it can be written to.
func prepareDirectory(path string) error {
	parent := filepath.Dir(path)
	if info, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("directory %s does not exist; create it first", parent)
	} else if err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", parent)
	}
	err := os.Mkdir(path, 0o750)
	switch {
	case err == nil:
		if err := syncDirectory(parent); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("cannot be created: %w", reason(err))
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("is not a directory")
	}
	return probe(path, 1)
}

// probe writes, syncs and removes a file of at least so many bytes.
func probe(path string, size int64) (err error) {
	f, err := os.CreateTemp(path, probePattern)
	if err != nil {
		return fmt.Errorf("cannot be written to: %w", reason(err))
	}
	if err = fill(f, size); err == nil {
		err = f.Sync()
	}
	// What matters is the first error. A file that cannot be removed is
	// removed by the next open.
	err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	if err != nil {
		return fmt.Errorf("cannot be written to: %w", reason(firstOf(err)))
	}
	return nil
}

// fill writes at least so many bytes.
func fill(f *os.File, size int64) (err error) {
	chunk := make([]byte, min(size, probeChunk))
	for i := range chunk {
		chunk[i] = byte(i * 7) // no file system makes a hole of this
	}
	for ; size > 0 && err == nil; size -= int64(len(chunk)) {
		_, err = f.Write(chunk)
	}
	return err
}

// firstOf returns the first of joined errors: messages are one line.
func firstOf(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()[0]
	}
	return err
}

// reason drops the operation and the path from an error of package os, as the
// message says both already.
func reason(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

func syncDirectory(path string) error {
	d, err := os.Open(path) //nolint:gosec // the directory that the operator chose
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeProbes removes what a crash in the middle of a probe left behind. It
// runs under RocksDB's lock, so these are nobody else's.
func removeProbes(path string) {
	names, err := filepath.Glob(filepath.Join(path, probePattern))
	if err != nil {
		return // the pattern is ours and cannot be bad
	}
	for _, name := range names {
		_ = os.Remove(name) // it does no harm but to take space
	}
}

// found is what a directory holds before RocksDB looks at it.
type found struct {
	database bool // there is a CURRENT
	tables   bool // there are table files
}

// checkFiles looks into the directory. RocksDB would take a store that lost
// its CURRENT for none, and start again over the data.
func checkFiles(path string) (found, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return found{}, err
	}
	var is found
	data := ""
	for _, e := range entries {
		switch ext := filepath.Ext(e.Name()); {
		case e.Name() == currentFile:
			is.database = true
		case ext == ".sst":
			is.tables = true
			data = e.Name()
		case ext == ".log":
			data = e.Name()
		}
	}
	if data != "" && !is.database {
		return found{}, fmt.Errorf("%w: there is %s but no %s", storage.ErrCorrupt, data, currentFile)
	}
	return is, nil
}

// checkFamilies refuses a store with families that this Fila does not know,
// and one that lost families. Nothing is written yet.
func checkFamilies(path string, is found) error {
	o := grocksdb.NewDefaultOptions()
	defer o.Destroy()
	names, err := grocksdb.ListColumnFamilies(o, path)
	if err != nil {
		return openError(err)
	}
	known := map[string]bool{}
	for _, f := range storage.Families() {
		known[f.String()] = true
	}
	for _, name := range names {
		if !known[name] {
			if err := checkFormatOnly(path); err != nil {
				return err
			}
			return fmt.Errorf("%w: it has a family %q", storage.ErrFormat, name)
		}
	}
	if len(names) < len(known) && is.tables {
		// An older Fila had fewer families, but a version. Without one the
		// manifest lost its end: to go on would delete the tables it forgot.
		return checkFormatOnly(path)
	}
	return nil
}

// checkFormatOnly looks at the version of a store without writing to it.
func checkFormatOnly(path string) error {
	o := grocksdb.NewDefaultOptions()
	defer o.Destroy()
	logInto(o, path)
	db, handles, err := grocksdb.OpenDbForReadOnlyColumnFamilies(o, path,
		[]string{storage.Default.String()}, []*grocksdb.Options{o}, false)
	if err != nil {
		return openError(err)
	}
	d := &database{db: db, families: handles, read: grocksdb.NewDefaultReadOptions()}
	defer d.close()
	err = storage.CheckFormat(d.get)
	if errors.Is(err, storage.ErrNotFound) {
		return errNoVersion
	}
	return err
}

var errNoVersion = fmt.Errorf("%w: there is data but no format version", storage.ErrCorrupt)

func openFamilies(path string, p profile, fresh bool) (*database, error) {
	d := &database{cache: newCache(p.cache), cacheMax: p.cache}
	options := p.database(path, fresh)
	defer options.Destroy()
	var names []string
	var familyOptions []*grocksdb.Options
	defer func() {
		for _, o := range familyOptions {
			o.Destroy()
		}
	}()
	for _, f := range storage.Families() {
		o, err := p.family(f, d.cache)
		if err != nil {
			d.cache.Destroy()
			return nil, err
		}
		names, familyOptions = append(names, f.String()), append(familyOptions, o)
	}
	// The families that are missing are made in this order, and so get the
	// next ids in this order.
	var err error
	d.db, d.families, err = grocksdb.OpenDbColumnFamilies(options, path, names, familyOptions)
	if err != nil {
		d.cache.Destroy()
		return nil, openError(err)
	}
	d.read = grocksdb.NewDefaultReadOptions()
	d.read.SetTotalOrderSeek(true)
	if d.writer, err = newWriter(d.db); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// check holds the database to the format before anything is read or written.
func (d *database) check(was found) error {
	for i, h := range d.families {
		if id := familyID(h); uint64(id) != uint64(i) {
			return fmt.Errorf("%w: family %s has the id %d instead of %d", storage.ErrCorrupt, storage.Family(i), id, i)
		}
	}
	err := storage.CheckFormat(d.get)
	if !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	// A new store, or one whose making was cut short. There must be nothing in it.
	if was.tables {
		return errNoVersion
	}
	for _, f := range storage.Families() {
		it := d.db.NewIteratorCF(d.read, d.families[f])
		it.SeekToFirst()
		some, err := it.Valid(), it.Err()
		it.Close()
		if err != nil {
			return rocksError(err)
		}
		if some {
			return errNoVersion
		}
	}
	var b storage.Batch
	storage.PutFormat(&b)
	return d.writer.write(b.Bytes(), true)
}

func (d *database) get(f storage.Family, key []byte) ([]byte, error) {
	if d.families[f] == nil {
		return nil, storage.ErrNotFound
	}
	v, err := d.db.GetCF(d.read, d.families[f], key)
	if err != nil {
		return nil, rocksError(err)
	}
	if !v.Exists() {
		return nil, storage.ErrNotFound
	}
	value := append(make([]byte, 0, v.Size()), v.Data()...)
	v.Free()
	return value, nil
}

// close frees everything. Nothing may be running on the database.
func (d *database) close() {
	if d.writer != nil {
		d.writer.close()
	}
	for _, h := range d.families {
		if h != nil {
			h.Destroy()
		}
	}
	d.db.Close()
	d.read.Destroy()
	if d.cache != nil {
		d.cache.Destroy()
	}
}

// openError is rocksError for opening: what is missing then was there once.
func openError(err error) error {
	if strings.Contains(err.Error(), "No such file or directory") {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, rocksError(err))
	}
	return rocksError(err)
}

// rocksError turns an error of RocksDB, which is text, into ours. Clients see it: of a
// path only the name of the file is kept.
func rocksError(err error) error {
	words := strings.Fields(err.Error())
	for n, w := range words {
		if strings.HasPrefix(w, "/") {
			words[n] = w[strings.LastIndexByte(w, '/')+1:]
		}
	}
	text := strings.Join(words, " ")
	switch {
	case strings.Contains(text, "lock hold by current process"), strings.Contains(text, "While lock file"):
		return storage.ErrLocked
	case strings.HasPrefix(text, "Corruption: "):
		return fmt.Errorf("%w: %s", storage.ErrCorrupt, strings.TrimPrefix(text, "Corruption: "))
	}
	return errors.New("rocksdb: " + text)
}
