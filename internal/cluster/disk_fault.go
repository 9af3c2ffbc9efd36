//go:build fault

package cluster

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"

	"github.com/faisca/fila/internal/fault"
)

// A binary with the tag fault notes what of the log would be left if the power was cut, for
// integration/powerloss, whose type Log describes the journal. It also has the planted faults of the log.
// The environment names the journal (POWERLOSS_LOG) and a directory for removed files
// (POWERLOSS_LOG_GRAVE); without them nothing is noted.

// diskFiles returns the files of the log.
func diskFiles() types.VFS {
	journal := os.Getenv("POWERLOSS_LOG")
	if journal == "" {
		return fs.New()
	}
	f, err := os.OpenFile(journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // of a test
	if err != nil {
		panic(err)
	}
	return &notedFiles{VFS: fs.New(), journal: f, grave: os.Getenv("POWERLOSS_LOG_GRAVE"), unsynced: fault.Planted(fault.UnsyncedLog)}
}

// diskMeta returns the metadata of the log.
func diskMeta() types.MetaStore {
	if fault.Planted(fault.ForgottenVote) {
		return &forgetfulMeta{MetaStore: &metadb.BoltMetaDB{}, values: map[string][]byte{}}
	}
	return &metadb.BoltMetaDB{}
}

// notedFiles are files whose changes and syncs are noted.
type notedFiles struct {
	types.VFS

	grave    string
	unsynced bool // a sync does nothing
	syncs    atomic.Uint64

	mu      sync.Mutex
	journal *os.File
}

// note writes a record. A journal that cannot be written would make every verdict worthless.
func (v *notedFiles) note(kind byte, number uint64, offset int64, name string, bytes []byte) {
	r := binary.BigEndian.AppendUint64([]byte{kind}, number)
	r = binary.BigEndian.AppendUint64(r, uint64(offset))
	r = binary.BigEndian.AppendUint16(r, uint16(len(name)))
	r = binary.BigEndian.AppendUint32(r, uint32(len(bytes)))
	r = append(append(r, name...), bytes...)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := v.journal.Write(r); err != nil {
		panic(err)
	}
}

// noted reports whether a file belongs to the log: the others are removed again at once.
func noted(name string) bool { return strings.HasSuffix(name, ".wal") }

// sync notes a sync of a file, or of the directory.
func (v *notedFiles) sync(kind byte, name string, sync func() error) error {
	number := v.syncs.Add(1)
	v.note(kind, number, 0, name, nil)
	if err := sync(); err != nil {
		return err
	}
	v.note('S', number, 0, "", nil)
	return nil
}

// Create implements types.VFS.
func (v *notedFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if !noted(name) {
		return v.VFS.Create(dir, name, size)
	}
	v.note('C', 0, 0, name, nil)
	f, err := v.VFS.Create(dir, name, size)
	if err != nil {
		return nil, err
	}
	return &notedFile{WritableFile: f, files: v, name: name}, nil
}

// Delete implements types.VFS. The library syncs the directory.
func (v *notedFiles) Delete(dir, name string) error {
	if !noted(name) {
		return v.VFS.Delete(dir, name)
	}
	_ = os.Link(filepath.Join(dir, name), filepath.Join(v.grave, name)) // it may have been there before
	v.note('U', 0, 0, name, nil)
	return v.sync('D', "", func() error { return v.VFS.Delete(dir, name) })
}

// OpenWriter implements types.VFS.
func (v *notedFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return &notedFile{WritableFile: f, files: v, name: name}, nil
}

// notedFile is a file of the log.
type notedFile struct {
	types.WritableFile

	files  *notedFiles
	name   string
	synced atomic.Bool
}

// WriteAt implements io.WriterAt.
func (f *notedFile) WriteAt(p []byte, at int64) (int, error) {
	old := make([]byte, len(p))
	_, _ = f.WritableFile.ReadAt(old, at) // zeros beyond the end
	f.files.note('W', 0, at, f.name, old)
	return f.WritableFile.WriteAt(p, at)
}

// Sync implements types.WritableFile. The library syncs the directory with the first sync of a file.
func (f *notedFile) Sync() error {
	if f.files.unsynced {
		return nil
	}
	if f.synced.Swap(true) {
		return f.files.sync('F', f.name, f.WritableFile.Sync)
	}
	return f.files.sync('D', "", func() error { return f.files.sync('F', f.name, f.WritableFile.Sync) })
}

// forgetfulMeta keeps term and vote in memory only.
type forgetfulMeta struct {
	types.MetaStore

	mu     sync.Mutex
	values map[string][]byte
}

// GetStable implements types.MetaStore.
func (m *forgetfulMeta) GetStable(key []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[string(key)], nil
}

// SetStable implements types.MetaStore.
func (m *forgetfulMeta) SetStable(key, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[string(key)] = append([]byte(nil), value...)
	return nil
}
