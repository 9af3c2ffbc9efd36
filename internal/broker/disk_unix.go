//go:build linux || darwin || freebsd

package broker

import (
	"io/fs"
	"os/signal"
	"syscall"
)

// bearFileLimit has writes beyond the limit of a file's size fail, like those to a full disk. Otherwise
// they would end the process: the threads of the store are not Go's.
func bearFileLimit() { signal.Ignore(syscall.SIGXFSZ) }

// freeBytes returns the space available to this user on the file system of path; 0 if
// unknown.
func freeBytes(path string) uint64 {
	var fs syscall.Statfs_t
	if syscall.Statfs(path, &fs) != nil {
		return 0
	}
	return uint64(fs.Bavail) * uint64(fs.Bsize) //nolint:gosec,unconvert,nolintlint // their types differ between systems
}

// occupied returns the space that a file takes on the disk.
func occupied(info fs.FileInfo) uint64 {
	const block = 512
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Blocks) * block
	}
	return uint64(info.Size())
}
