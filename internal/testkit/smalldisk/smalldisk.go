// Package smalldisk mounts small file systems that tests can fill.
package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrMount means that the process may not mount file systems.
var ErrMount = errors.New("no file system can be mounted here")

// Mount mounts a file system of the given size, in memory, on an existing directory.
func Mount(dir string, bytes int64) error {
	if err := syscall.Mount("fila-small", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		return fmt.Errorf("%w: %w", ErrMount, err)
	}
	return nil
}

// Unmount unmounts it, which discards its contents. It fails while files are open.
func Unmount(dir string) error { return syscall.Unmount(dir, 0) }

// Detach is Unmount without waiting for open files to be closed.
func Detach(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }

func ballast(dir string) string { return filepath.Join(dir, "ballast") }

// Fill writes a file until no space is left, to the last byte. It may be called again when space
// has been freed.
func Fill(dir string) error {
	f, err := os.OpenFile(ballast(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() // its error is that the disk is full, as intended
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	return nil
}

// Empty removes the file written by Fill.
func Empty(dir string) error {
	if err := os.Remove(ballast(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Usage returns the space taken by the files of a directory, without subdirectories.
func Usage(dir string) (bytes int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		var s syscall.Stat_t
		switch err := syscall.Stat(filepath.Join(dir, e.Name()), &s); {
		case errors.Is(err, syscall.ENOENT): // removed meanwhile
		case err != nil:
			return 0, err
		default:
			bytes += s.Blocks * 512
		}
	}
	return bytes, nil
}
