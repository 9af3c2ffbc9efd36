package broker

import (
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/backup"
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

// openStore opens the store; it keeps at most files files open.
func openStore(cfg cli.Storage, files int, log zerolog.Logger) (store, error) {
	if cfg.Engine == cli.EngineMemory {
		log.Warn().Msg("storage.engine is memory: nothing survives the end of this process")
		return memoryStore(), nil
	}
	s, err := rocks.Open(rocks.Options{
		Path: cfg.Path, Mode: rocks.Mode(cfg.Mode), Memtable: rocks.Memtable(cfg.Memtable),
		BlockCacheBytes: cfg.BlockCacheBytes, OpenFiles: files, ReserveBytes: cfg.ReserveBytes,
	})
	if errors.Is(err, rocks.ErrNoCgo) {
		return nil, cli.UsageError{Err: fmt.Errorf("storage.engine rocksdb: %w, or start with --storage.engine memory", err)}
	}
	return s, err
}

// storeFilesWanted returns how many files the store keeps open if descriptors allow.
func storeFilesWanted(cfg cli.Storage) int {
	if cfg.Engine == cli.EngineMemory {
		return 0
	}
	return rocks.OpenFiles(rocks.Mode(cfg.Mode))
}

func memoryStore() store { return storage.NewMemory() }
