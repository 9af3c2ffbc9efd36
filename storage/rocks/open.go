//go:build cgo

package rocks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

const (
	currentFile  = "CURRENT"      // RocksDB's pointer to the MANIFEST; it marks a directory as a database
	probePattern = "fila-probe-*" // temporary files that test whether the disk accepts writes
	probeChunk   = 1 << 20
)

// database is an open RocksDB together with the native objects that must be freed after it.
type database struct {
	db       *grocksdb.DB
	families []*grocksdb.ColumnFamilyHandle // by storage.Family; nil: missing in a read-only store of an older version
	cache    *grocksdb.Cache
	cacheMax uint64
	read     *grocksdb.ReadOptions
	readAll  *grocksdb.ReadOptions // of a scan without an end, whose blocks are read once: they stay out of the cache
	readKeys *grocksdb.ReadOptions // of scans within a key prefix
	writer   *writer               // nil: read-only
	spares   *spareLogs
	large    *largeValues // nil: read-only
}

// Open opens the store in o.Path and creates it if the directory is new or empty; the parent
// directory must exist. It returns storage.ErrLocked if another process has the store open,
// storage.ErrFormat for an unknown format version and storage.ErrCorrupt for damaged files, wrapped
// into one line that names the directory. It refuses a linked RocksDB that checkVersion refuses.
func Open(o Options) (*Store, error) {
	if err := checkVersion(Version(), headersVersion()); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
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
	o, err := openBest(path, p)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	s := newStore(path, p, o.d)
	s.adoptState(o)
	s.reclaimSoon()
	return s, nil
}

// The steps of an open, each with an error of its own that names the directory:
//
//	checkVersion      the linked RocksDB is the one that the headers describe
//	prepareDirectory  it exists and takes writes, or is created
//	checkFiles        it holds a database, or neither data files nor those of something else
//	checkSurvey       no file is missing or inconsistent (survey.go, cut.go)
//	checkFamilies     all column families are known
//	openFamilies      RocksDB opens the store and replays its log
//	check             the family ids and the format version are known
//
// On a full disk openBest tries again without writing tables, see full.go.

// openDatabase opens or creates the database after all checks: the directory is writable, all files
// are present and consistent, the families and the format version are known.
func openDatabase(path string, p profile) (*database, error) {
	if err := prepareDirectory(path); err != nil {
		return nil, err
	}
	found, err := checkFiles(path)
	if err != nil {
		return nil, err
	}
	if !found.database && found.foreign != "" {
		return nil, fmt.Errorf("%s: %w: name an empty directory with storage.path", found.foreign, storage.ErrForeign)
	}
	if found.database {
		if err := checkSurvey(path, p.replica); err != nil {
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
	if d.spares == nil {
		removeSpares(path)
	}
	listLogs(path)
	return d, nil
}

// prepareDirectory creates the directory unless it exists, and verifies by writing a probe file
// that it is writable. It does not create parents.
func prepareDirectory(path string) error {
	parent := filepath.Dir(path)
	if info, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("directory %s does not exist; create it first", parent)
	} else if err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is %w", parent, syscall.ENOTDIR)
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
		return fmt.Errorf("it is %w", syscall.ENOTDIR)
	}
	return probe(path, 1)
}

// probe writes, syncs and removes a file of at least size bytes.
func probe(path string, size int64) (err error) {
	f, err := os.CreateTemp(path, probePattern)
	if err != nil {
		return fmt.Errorf("cannot be written to: %w", reason(err))
	}
	if err = fill(f, size); err == nil {
		err = f.Sync()
	}
	// Only the first error is reported. A file that cannot be removed here is removed by the next
	// open; one that is not there was removed by an open beside this.
	left := os.Remove(f.Name())
	if errors.Is(left, fs.ErrNotExist) {
		left = nil
	}
	if err = errors.Join(err, f.Close(), left); err != nil {
		return fmt.Errorf("cannot be written to: %w", reason(firstOf(err)))
	}
	return nil
}

// fill writes at least size bytes that no file system stores as a hole.
func fill(f *os.File, size int64) (err error) {
	chunk := make([]byte, min(size, probeChunk))
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	for ; size > 0 && err == nil; size -= int64(len(chunk)) {
		_, err = f.Write(chunk)
	}
	return err
}

// firstOf returns the first of joined errors, because error texts are one line.
func firstOf(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()[0]
	}
	return err
}

// reason strips operation and path from an error of package os: the caller's text names both.
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

// removeProbes removes probe files that a crash has left. It runs under RocksDB's lock, so no other
// process is using them.
func removeProbes(path string) { removeMatching(path, probePattern) }

func removeMatching(path, pattern string) {
	names, err := filepath.Glob(filepath.Join(path, pattern))
	if err != nil {
		return // the pattern is a valid constant
	}
	for _, name := range names {
		_ = os.Remove(name) // a leftover only takes space
	}
}

// contents is what a directory holds before RocksDB opens it.
type contents struct {
	database bool   // CURRENT exists
	tables   bool   // at least one table file exists
	foreign  string // files that are not of a store; "": none
}

// checkFiles lists the directory. It returns ErrCorrupt for data files without CURRENT: RocksDB
// would create an empty database over them.
func checkFiles(path string) (contents, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return contents{}, err
	}
	var is contents
	data, foreign := "", 0
	for _, e := range entries {
		switch number, ext, _ := strings.Cut(e.Name(), "."); {
		case e.Name() == currentFile:
			is.database = true
		case strings.Trim(number, "0123456789") == "" && number != "" && ext == "sst":
			is.tables = true
			data = e.Name()
		case strings.Trim(number, "0123456789") == "" && number != "" && ext == "log":
			data = e.Name()
		case !ofStore(e.Name()):
			if foreign++; foreign == 1 {
				is.foreign = e.Name()
			}
		}
	}
	if foreign > 1 {
		is.foreign += fmt.Sprintf(" and %d more", foreign-1)
	}
	if data != "" && !is.database {
		return contents{}, fmt.Errorf("%w: %s exists but %s does not", storage.ErrCorrupt, data, currentFile)
	}
	return is, nil
}

// ofStore reports whether a name may stand in the directory of a store that has no CURRENT yet: RocksDB's and
// Fila's own, those that are hidden, and what a file system has in its root.
func ofStore(name string) bool {
	if name == "lost+found" || strings.HasSuffix(name, ".dbtmp") {
		return true
	}
	return slices.ContainsFunc([]string{"fila", ".", "LOCK", "LOG", "IDENTITY", "OPTIONS-", manifestPrefix}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// checkFamilies returns ErrFormat for a store with an unknown column family and ErrCorrupt for one
// that has lost families. It writes nothing.
func checkFamilies(path string, is contents) error {
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
			return fmt.Errorf("%w: unknown column family %q", storage.ErrFormat, name)
		}
	}
	if len(names) < len(known) && is.tables {
		// An older version had fewer families but wrote a format version. Without that version the
		// MANIFEST is truncated, and opening would delete the tables it no longer lists.
		return checkFormatOnly(path)
	}
	return nil
}

// checkFormatOnly checks the format version of a store read-only.
func checkFormatOnly(path string) error {
	o := grocksdb.NewDefaultOptions()
	defer o.Destroy()
	logInto(o, path)
	db, handles, err := grocksdb.OpenDbForReadOnlyColumnFamilies(o, path,
		[]string{storage.Default.String()}, []*grocksdb.Options{o}, false)
	if err != nil {
		return openError(err)
	}
	d := &database{db: db, families: handles}
	d.setReadOptions()
	defer d.close()
	err = storage.CheckFormat(d.get)
	if errors.Is(err, storage.ErrNotFound) {
		return errNoVersion
	}
	return err
}

var errNoVersion = fmt.Errorf("%w: data but no format version", storage.ErrCorrupt)

// openFamilies opens the database with all families of the format, creating those that are missing.
func openFamilies(path string, p profile, fresh bool) (*database, error) {
	d := &database{cache: newCache(p.cache), cacheMax: p.cache, large: newLargeValues(p.large)}
	options := p.database(path, fresh)
	defer options.Destroy()
	d.spares = useSpares(options, path, &p)
	var names []string
	var familyOptions []*grocksdb.Options
	defer func() {
		for _, o := range familyOptions {
			o.Destroy()
		}
	}()
	for _, f := range storage.Families() {
		names, familyOptions = append(names, f.String()), append(familyOptions, p.family(f, d.cache, d.large))
	}
	// RocksDB creates missing families in this order and numbers them consecutively, so an id
	// equals its storage.Family.
	var err error
	d.db, d.families, err = grocksdb.OpenDbColumnFamilies(options, path, names, familyOptions)
	if err != nil {
		d.cache.Destroy()
		d.spares.end()
		d.large.free()
		return nil, openError(err)
	}
	d.setReadOptions()
	if d.writer, err = newWriter(d.db, d.spares); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// setReadOptions sets the options of reads.
func (d *database) setReadOptions() {
	d.read, d.readAll, d.readKeys = grocksdb.NewDefaultReadOptions(), grocksdb.NewDefaultReadOptions(), grocksdb.NewDefaultReadOptions()
	d.read.SetTotalOrderSeek(true)
	d.readAll.SetTotalOrderSeek(true)
	d.readAll.SetFillCache(false)
	d.readKeys.SetPrefixSameAsStart(true)
}

// check verifies family ids and format version before anything else is read or written, and writes
// the version into a new store.
func (d *database) check(was contents) error {
	for i, h := range d.families {
		if id := familyID(h); uint64(id) != uint64(i) {
			return fmt.Errorf("%w: family %s has the id %d instead of %d", storage.ErrCorrupt, storage.Family(i), id, i)
		}
	}
	err := storage.CheckFormat(d.get)
	if !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	// A new store, or one whose creation was interrupted: it must be empty.
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

// get returns a copy of the value, or storage.ErrNotFound.
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

// close stops the writer and frees all native objects. No operation may be running.
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
	d.spares.end()
	d.large.free()
	d.read.Destroy()
	d.readAll.Destroy()
	d.readKeys.Destroy()
	if d.cache != nil {
		d.cache.Destroy()
	}
}

// openError translates errors of an open, where a missing file means damage: the MANIFEST lists it.
func openError(err error) error {
	if strings.Contains(err.Error(), "No such file or directory") {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, rocksError(err))
	}
	return rocksError(err)
}

// rocksError translates RocksDB's textual errors into those of package storage. Clients see the
// text, so paths are reduced to file names.
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
