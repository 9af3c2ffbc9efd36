package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
)

// What is done with a node that does not run. Both ways out of a cluster begin alike: what the log has and
// the store has not is applied. A majority may have acknowledged these entries or not; where it has not,
// their clients were told that nothing is known.

// Left is what Detach and Recover report.
type Left struct {
	Cluster  string // id of the cluster that the store was a part of; empty: it is a plain store
	Node     string
	Entry    uint64 // newest entry that the store has
	Replayed uint64 // entries that came from the log
	Kept     string // directory where the log is now; empty: there was none
	New      string // id of the cluster that Recover has made
}

// keptSuffix is that of the directory of the log of a node that has left its cluster.
const keptSuffix = "-detached"

// Detach makes the store of a node a plain one. dir is Config.Dir. It may be repeated.
func Detach(store LocalStore, dir string) (*Left, error) {
	left, err := replay(store, dir)
	if err != nil {
		return nil, err
	}
	if _, err := replica.Detach(store); err != nil {
		return nil, err
	}
	left.Kept, err = putAway(dir)
	return left, err
}

// Recover makes a new cluster of a node alone, with what its store and its log have. It may be repeated.
func Recover(store LocalStore, dir string) (*Left, error) {
	id, err := anyIdentity(dir)
	if err != nil {
		return nil, err
	}
	if id == nil {
		return nil, fmt.Errorf("%s has no identity: the node was never a member of a cluster, or has left it", dir)
	}
	left, err := replay(store, dir)
	if err != nil {
		return nil, err
	}
	own, err := ownServer(dir, id.Node)
	if err != nil {
		return nil, err
	}
	if left.Cluster == "" {
		return nil, errors.New("the store has left its cluster: it is that of a single broker")
	}
	now := &identity{Format: identityFormat, Cluster: uuid.NewString(), Name: id.Name, Node: id.Node, Admitted: 1}
	if err := replica.Begin(store, now.Cluster); err != nil {
		return nil, err
	}
	if left.Kept, err = putAway(dir); err != nil {
		return nil, err
	}
	if err := errors.Join(makeDirectory(dir), makeDirectory(filepath.Join(dir, raftName))); err != nil {
		return nil, err
	}
	meta := &snapshotMeta{
		Format: snapshotFormat, Index: 1, Term: 1, ConfigurationIndex: 1, Applied: 1, Configuration: raft.Configuration{Servers: []raft.Server{own}},
	}
	if err := writeJSON(filepath.Join(dir, raftName, snapshotFile), meta); err != nil {
		return nil, err
	}
	left.Node, left.New = id.Node, now.Cluster
	return left, now.write(dir)
}

// anyIdentity returns the identity in a directory or, if a call was interrupted, that in the one where the
// log was put.
func anyIdentity(dir string) (*identity, error) {
	for _, d := range []string{dir, filepath.Clean(dir) + keptSuffix} {
		if id, err := readAnyIdentity(d); id != nil || err != nil {
			return id, err
		}
	}
	return nil, nil //nolint:nilnil // a store without a log is no error
}

// Known reports whether a directory is or was that of a member of a cluster.
func Known(dir string) (bool, error) {
	id, err := anyIdentity(dir)
	return id != nil, err
}

// replay applies what the log has and the store has not.
func replay(store LocalStore, dir string) (*Left, error) {
	r, err := replica.ReadRecord(store)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return &Left{}, nil
	}
	left := &Left{Cluster: r.Cluster, Entry: r.Index}
	id, err := readAnyIdentity(dir)
	if err != nil {
		return nil, err
	}
	if id == nil || id.Cluster != r.Cluster {
		return left, nil
	}
	left.Node = id.Node
	if left.Replayed, err = replayLog(store, r.Cluster, filepath.Join(dir, raftName)); err != nil {
		return nil, err
	}
	if r, err = replica.ReadRecord(store); err != nil {
		return nil, err
	}
	left.Entry = r.Index
	return left, store.Sync()
}

// replayLog applies the entries of the log in a directory, and returns how many batches these were.
func replayLog(store LocalStore, cluster, dir string) (applied uint64, err error) {
	m, err := replica.NewMachine(store, cluster)
	if err != nil {
		return 0, err
	}
	snaps, err := openSnapshots(dir, filepath.Join(dir, "none"), nil, zerolog.Nop())
	if err != nil {
		return 0, err
	}
	meta := snaps.newest()
	if meta == nil {
		return 0, errors.New("the node has not got the data of the cluster yet: take another one")
	}
	if err := m.Has(meta.Applied); err != nil {
		return 0, err
	}
	var failed error
	log, err := openLog(logOptions{Dir: filepath.Join(dir, logName), SegmentBytes: segmentBytes(1 << 30), Retry: time.Second, Fatal: func(err error) { failed = err }, Log: zerolog.Nop()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, failed, log.Close()) }()
	first, err := log.FirstIndex()
	if err != nil || first == 0 {
		return 0, err
	}
	last, err := log.LastIndex()
	if err != nil {
		return 0, err
	}
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := log.GetLog(i, &l); err != nil {
			return applied, err
		}
		if l.Type != raft.LogCommand {
			continue
		}
		before := m.Applied()
		if err := m.Apply(l.Index, l.Term, l.Data); err != nil && !errors.Is(err, storage.ErrDeposed) {
			return applied, err
		}
		if m.Applied() != before {
			applied++
		}
	}
	return applied, nil
}

// ownServer returns a node as its cluster knows it, for a configuration with it alone.
func ownServer(dir, node string) (raft.Server, error) {
	own := raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(node), Address: raft.ServerAddress(node + addressToCome)}
	for _, d := range []string{dir, filepath.Clean(dir) + keptSuffix} {
		s, err := openSnapshots(filepath.Join(d, raftName), filepath.Join(d, "none"), nil, zerolog.Nop())
		if err != nil {
			return own, err
		}
		meta := s.newest()
		if meta == nil {
			continue
		}
		for _, server := range meta.Configuration.Servers {
			if server.ID == own.ID {
				own.Address = server.Address
			}
		}
		return own, nil
	}
	return own, nil
}

// addressToCome stands for the address of a node that no snapshot names. A node that is a cluster alone
// corrects its own address.
const addressToCome = ":1"

// putAway renames the directory of the log, so that the node has no identity any more.
func putAway(dir string) (kept string, err error) {
	kept = filepath.Clean(dir) + keptSuffix
	_, err = os.Stat(filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(kept); err != nil {
			return "", nil //nolint:nilerr // there is no log
		}
		return kept, nil // by an earlier call
	}
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(kept); err != nil { // of an earlier cluster
		return "", err
	}
	if err := os.Rename(dir, kept); err != nil {
		return "", err
	}
	return kept, syncDirectory(filepath.Dir(kept))
}
