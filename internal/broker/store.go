package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/broker/backup"
	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

// store is what this package needs of a store.
type store interface {
	engine.Store
	backup.Store
	Sync() error
	Close() error
}

// measured is a store that has figures of its own. The one in memory has none.
type measured interface{ Stats() (rocks.Stats, error) }

// backups returns the maker of backups; nil for a store in memory.
func backups(cfg cli.Storage, s store) engine.Backups {
	if cfg.Engine == cli.EngineMemory {
		return nil
	}
	return backup.New(cfg.Backups(), s)
}

// openStore opens the store; it keeps at most files files open. Without node it refuses the store of
// a node of a cluster: what it wrote there the other nodes would not have.
func openStore(cfg cli.Storage, node bool, files int, log zerolog.Logger) (store, error) {
	if cfg.Engine == cli.EngineMemory {
		log.Warn().Msg("storage.engine is memory: nothing survives the end of this process")
		return memoryStore(), nil
	}
	bearFileLimit()
	s, err := rocks.Open(rocks.Options{
		Path: cfg.Path, Mode: rocks.Mode(cfg.Mode), Memtable: rocks.Memtable(cfg.Memtable),
		BlockCacheBytes: cfg.BlockCacheBytes, OpenFiles: files, ReserveBytes: cfg.ReserveBytes, Replica: node,
	})
	if errors.Is(err, rocks.ErrNoCgo) {
		return nil, cli.UsageError{Err: fmt.Errorf("storage.engine rocksdb: %w, or start with --storage.engine memory", err)}
	}
	if errors.Is(err, storage.ErrForeign) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) { // another start does not help
		return nil, cli.UsageError{Err: err}
	}
	if err != nil || node {
		return s, err
	}
	of, err := replica.ReadRecord(s)
	if err == nil && of != nil {
		err = fmt.Errorf("the store %s belongs to a node of a cluster, with the id %s: start it with cluster.node_id", cfg.Path, of.Cluster)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// storeFilesWanted returns how many files the store keeps open if descriptors allow.
func storeFilesWanted(cfg cli.Storage) int {
	if cfg.Engine == cli.EngineMemory {
		return 0
	}
	return rocks.OpenFiles(rocks.Mode(cfg.Mode))
}

func memoryStore() store { return storage.NewMemory() }
