package cluster

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"
)

// snapshots is Raft's store of snapshots. A snapshot is metadata only: the local store is the state
// that it stands for. When another node needs one, a checkpoint of the store is made there and then
// and sent as a tar. Its content is newer than the index of the snapshot; the entries between are
// skipped by the machine that gets it. So no checkpoint keeps old tables on the disk in between.
//
// A snapshot that arrives is unpacked into a directory beside the store. fsm.Restore puts it into the
// place of the store and writes the metadata afterwards.
type snapshots struct {
	dir   string // of the metadata
	path  string // of the local store; copies are made beside it
	store LocalStore
	log   zerolog.Logger

	mu      sync.Mutex
	meta    *snapshotMeta // nil: there is none
	arrival *arrival      // that is to be restored
	copies  int           // that have been made, for their names
	sending int
}

// snapshotMeta is the newest snapshot, as a file.
type snapshotMeta struct {
	Format             int                `json:"format"`
	Index              uint64             `json:"index"`
	Term               uint64             `json:"term"`
	Configuration      raft.Configuration `json:"configuration"`
	ConfigurationIndex uint64             `json:"configuration_index"`
	// Applied is the index of the newest batch that the synced store had. The log may be cut off
	// up to Index, so a store with less has lost something for good.
	Applied uint64 `json:"applied"`
}

const (
	snapshotFormat  = 1
	snapshotFile    = "snapshot"
	arrivingSuffix  = "-joining"
	sendingSuffix   = "-sending-"
	arrivedSnapshot = "arrived-" // prefix of an id
)

// arrival is a snapshot that another node has sent.
type arrival struct {
	dir  string
	meta snapshotMeta
}

// openSnapshots reads the metadata and removes what a crash has left.
func openSnapshots(dir, path string, store LocalStore, log zerolog.Logger) (*snapshots, error) {
	s := &snapshots{dir: dir, path: filepath.Clean(path), store: store, log: log}
	left, err := filepath.Glob(s.path + sendingSuffix + "*")
	if err != nil {
		return nil, err
	}
	for _, name := range append(left, s.path+arrivingSuffix) {
		if err := os.RemoveAll(name); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(dir, snapshotFile)
	text, err := os.ReadFile(file) //nolint:gosec // below the operator's own directory
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s.meta = new(snapshotMeta)
	if err := json.Unmarshal(text, s.meta); err != nil {
		return nil, fmt.Errorf("%s is damaged: empty cluster.path and storage.path of this node, and it joins again: %w", file, err)
	}
	if s.meta.Format > snapshotFormat {
		return nil, fmt.Errorf("%s was written by a newer Fila: upgrade this node", file)
	}
	return s, nil
}

// newest returns the metadata of the newest snapshot, nil if there is none.
func (s *snapshots) newest() *snapshotMeta {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta
}

// busy reports whether a copy of the store is being sent.
func (s *snapshots) busy() bool { return s.underWay() > 0 }

// underWay returns how many copies of the store are being sent.
func (s *snapshots) underWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sending
}

// write makes the metadata of a snapshot durable. It refuses an older one than there is.
func (s *snapshots) write(meta *snapshotMeta) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meta != nil && s.meta.Index > meta.Index {
		return fmt.Errorf("there is a newer snapshot, of entry %d", s.meta.Index)
	}
	meta.Format = snapshotFormat
	if err := writeJSON(filepath.Join(s.dir, snapshotFile), meta); err != nil {
		return fmt.Errorf("metadata of a snapshot: %w", err)
	}
	s.meta = meta
	return nil
}

// raft returns the metadata as Raft knows it.
func (m *snapshotMeta) raft(id string, size int64) *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: id, Index: m.Index, Term: m.Term, Configuration: m.Configuration,
		ConfigurationIndex: m.ConfigurationIndex, Size: size,
	}
}

func (m *snapshotMeta) id() string { return strconv.FormatUint(m.Index, 10) }

// List implements raft.SnapshotStore.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	meta := s.newest()
	if meta == nil {
		return nil, nil
	}
	return []*raft.SnapshotMeta{meta.raft(meta.id(), 0)}, nil
}

// Create implements raft.SnapshotStore, for a snapshot of this node as for one that arrives.
func (s *snapshots) Create(_ raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if newest := s.newest(); newest != nil && newest.Index > index {
		return nil, fmt.Errorf("there is a newer snapshot, of entry %d", newest.Index)
	}
	return &sink{s: s, meta: snapshotMeta{Index: index, Term: term, Configuration: members, ConfigurationIndex: membersIndex}}, nil
}

// Open implements raft.SnapshotStore. Of a snapshot of this node it returns a copy of the store, of
// one that has arrived nothing to read: takeArrival has it.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	if a := s.arrival; a != nil && id == arrivedSnapshot+a.meta.id() {
		s.mu.Unlock()
		return a.meta.raft(id, 0), io.NopCloser(eof{}), nil
	}
	meta := s.meta
	if meta == nil {
		s.mu.Unlock()
		return nil, nil, fmt.Errorf("there is no snapshot %s", id)
	}
	s.copies++
	dir := s.path + sendingSuffix + strconv.Itoa(s.copies)
	s.sending++ // from here on the log behind meta stays
	s.mu.Unlock()
	c, err := s.copy(dir)
	if err != nil {
		s.sent(dir)
		return nil, nil, err
	}
	s.log.Info().Int64("bytes", c.size).Msg("a copy of the data is being sent to another node")
	return meta.raft(meta.id(), c.size), c, nil
}

// sent ends the sending of a copy.
func (s *snapshots) sent(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		s.log.Warn().Err(err).Msg("a copy of the data that was sent could not be removed")
	}
	s.mu.Lock()
	s.sending--
	s.mu.Unlock()
}

// takeArrival returns the snapshot that is to be restored.
func (s *snapshots) takeArrival() (*arrival, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.arrival
	if s.arrival = nil; a == nil {
		return nil, errors.New("no copy of the data has arrived")
	}
	return a, nil
}

type eof struct{}

// Read implements io.Reader.
func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// sink takes one snapshot: bytes of another node, or none and metadata that snapshot.Persist sets.
type sink struct {
	s     *snapshots
	meta  snapshotMeta
	bytes *io.PipeWriter // nil: none have come
	done  chan error     // the result of unpacking
	over  bool
}

// ID implements raft.SnapshotSink.
func (k *sink) ID() string {
	if k.bytes != nil {
		return arrivedSnapshot + k.meta.id()
	}
	return k.meta.id()
}

// Write implements io.Writer: the tar of another node's store.
func (k *sink) Write(p []byte) (int, error) {
	if k.bytes == nil {
		dir := k.dir()
		if err := os.RemoveAll(dir); err != nil {
			return 0, err
		}
		var r *io.PipeReader
		r, k.bytes = io.Pipe()
		k.done = make(chan error, 1)
		go func() {
			err := unpack(dir, r)
			_ = r.CloseWithError(err) // never fails
			k.done <- err
		}()
	}
	return k.bytes.Write(p)
}

func (k *sink) dir() string { return k.s.path + arrivingSuffix }

// Close implements raft.SnapshotSink.
func (k *sink) Close() error {
	if k.over {
		return nil
	}
	k.over = true
	if k.bytes == nil {
		return k.s.write(&k.meta)
	}
	if err := errors.Join(k.bytes.Close(), <-k.done); err != nil {
		return errors.Join(err, os.RemoveAll(k.dir()))
	}
	k.s.mu.Lock()
	k.s.arrival = &arrival{dir: k.dir(), meta: k.meta}
	k.s.mu.Unlock()
	return nil
}

// Cancel implements raft.SnapshotSink.
func (k *sink) Cancel() error {
	if k.over || k.bytes == nil {
		return nil
	}
	k.over = true
	_ = k.bytes.CloseWithError(errors.New("cancelled")) // never fails
	<-k.done                                            //nolint:errcheck // why it failed does not matter any more
	return os.RemoveAll(k.dir())
}

// copied is a copy of the store as a tar.
type copied struct {
	*io.PipeReader

	s    *snapshots
	dir  string
	size int64
	once sync.Once
}

const tarBlock = 512

// copy makes a checkpoint and returns it as a tar, whose size is known before it is read.
func (s *snapshots) copy(dir string) (*copied, error) {
	if err := s.store.Checkpoint(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	c := &copied{s: s, dir: dir, size: 2 * tarBlock}
	var files []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() || len(info.Name()) > 99 {
			return nil, fmt.Errorf("a copy of the store has %s, which is no file of a store", info.Name())
		}
		files = append(files, info)
		c.size += tarBlock + (info.Size()+tarBlock-1)/tarBlock*tarBlock
	}
	r, w := io.Pipe()
	c.PipeReader = r
	go func() { _ = w.CloseWithError(pack(w, dir, files)) }() // never fails
	return c, nil
}

// Close ends the sending.
func (c *copied) Close() error {
	err := c.PipeReader.Close()
	c.once.Do(func() { c.s.sent(c.dir) })
	return err
}

// pack writes files of a directory as a tar, in the plain format: one block for each header.
func pack(to io.Writer, dir string, files []fs.FileInfo) error {
	w := tar.NewWriter(to)
	for _, info := range files {
		if err := w.WriteHeader(&tar.Header{Name: info.Name(), Size: info.Size(), Mode: 0o640, Format: tar.FormatGNU}); err != nil {
			return err
		}
		f, err := os.Open(filepath.Join(dir, info.Name())) //nolint:gosec // of our own copy
		if err != nil {
			return err
		}
		_, err = io.CopyN(w, f, info.Size())
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return w.Close()
}

// unpack writes the files of a tar into a new directory and syncs them. It reads to the end.
func unpack(dir string, from io.Reader) error {
	if err := os.Mkdir(dir, 0o750); err != nil {
		return err
	}
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || h.Name != filepath.Base(h.Name) || h.Name == "." || h.Name == ".." {
			return fmt.Errorf("a copy of a store with %q, which is no file of a store", h.Name)
		}
		f, err := os.OpenFile(filepath.Join(dir, h.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640) //nolint:gosec // a bare name
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r) //nolint:gosec // a node of the cluster has sent it, and said how long it is
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, from) // the padding
	return errors.Join(err, syncDirectory(dir), syncDirectory(filepath.Dir(dir)))
}
