//go:build !linux && !darwin && !freebsd

package broker

import "io/fs"

func bearFileLimit() {}

func freeBytes(string) uint64 { return 0 }

func occupied(info fs.FileInfo) uint64 { return uint64(info.Size()) }
