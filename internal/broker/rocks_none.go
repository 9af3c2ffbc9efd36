//go:build !cgo

package broker

import (
	"errors"

	"github.com/faisca/fila/cli"
)

// Without cgo everything but RocksDB is built. Such a binary serves tests and trials with
// the store in memory.

func openRocks(cli.Storage, int) (store, error) { return nil, errNoRocks() }

func storeFilesWanted(cli.Storage) int { return 0 } // opening the store returns the error

func errNoRocks() error {
	return cli.UsageError{Err: errors.New("storage.engine rocksdb is not in this binary, which was built without cgo: " +
		"build it with `make build`, or start with --storage.engine memory")}
}

func rocksVersion() string { return "" }
