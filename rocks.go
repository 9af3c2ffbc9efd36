//go:build cgo

package main

import (
	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/storage/rocks"
)

func openRocks(cfg cli.Storage) (store, error) {
	return rocks.Open(rocks.Options{Path: cfg.Path, Mode: rocks.Mode(cfg.Mode), BlockCacheBytes: cfg.BlockCacheBytes})
}

func rocksVersion() string { return rocks.Version() }
