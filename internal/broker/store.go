package broker

import (
	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/backup"
	"github.com/faisca/fila/storage"
)

// store is what this package needs of a store.
type store interface {
	engine.Store
	backup.Store
	Sync() error
	Close() error
}

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
	return openRocks(cfg, files)
}

func memoryStore() store { return storage.NewMemory() }
