//go:build cgo

package broker

import (
	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/storage/rocks"
)

func openRocks(cfg cli.Storage, openFiles int) (store, error) {
	return rocks.Open(rocks.Options{
		Path: cfg.Path, Mode: rocks.Mode(cfg.Mode), Memtable: rocks.Memtable(cfg.Memtable),
		BlockCacheBytes: cfg.BlockCacheBytes, OpenFiles: openFiles, ReserveBytes: cfg.ReserveBytes,
	})
}

// storeFilesWanted returns how many files the store keeps open if descriptors allow.
func storeFilesWanted(cfg cli.Storage) int { return rocks.OpenFiles(rocks.Mode(cfg.Mode)) }

func rocksVersion() string { return rocks.Version() }
