//go:build !cgo

package broker

import (
	"errors"

	"github.com/faisca/fila/cli"
)

// Without cgo everything builds but RocksDB: enough for tests and for trying
// things out, not for keeping anything.

func openRocks(cli.Storage, int) (store, error) { return nil, errNoRocks() }

func storeFilesWanted(cli.Storage) int { return 0 } // opening it says why

func errNoRocks() error {
	return cli.UsageError{Err: errors.New("storage.engine rocksdb is not in this binary, which was built without cgo: " +
		"build it with `make build`, or start with --storage.engine memory")}
}

func rocksVersion() string { return "" }
