// Package backup manages copies of a store in a directory: their names, their completion,
// and restoring a data directory from one. The store defines the contents of a copy.
//
// A backup is created under a hidden name, synced, and then renamed. So a directory with
// the name of a backup is always complete.
package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	unfinished = ".unfinished-" // prefix of the names of incomplete backups
	lockFile   = ".lock"
	nameMax    = 128
)

// Store is a store that can be copied.
type Store interface {
	// Checkpoint writes a consistent copy of the store into a new directory.
	Checkpoint(dir string) error
}

// Backups manages the backups of one store.
type Backups struct {
	dir   string
	store Store
}

// New returns the backups of a store in dir, which is created with the first backup.
func New(dir string, store Store) *Backups { return &Backups{dir: filepath.Clean(dir), store: store} }

// Check validates the name of a new backup. A valid name is within the directory and not
// hidden.
func (b *Backups) Check(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(b.dir, name)); err == nil {
		return fmt.Errorf("a backup %q exists already", name)
	}
	return nil
}

func checkName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if name == "" || len(name) > nameMax || strings.Trim(name, letters+"._-") != "" || !strings.Contains(letters, name[:1]) {
		return fmt.Errorf("%.160q cannot be the name of a backup: want up to %d letters, digits and . _ -, the first a letter or digit; "+
			"backups are stored in storage.backup_path", name, nameMax)
	}
	return nil
}

// Take creates a backup and returns its path when it is on disk.
func (b *Backups) Take(name string) (path string, err error) {
	if err := b.Check(name); err != nil {
		return "", err
	}
	if err := makeDirectory(b.dir); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(b.dir, lockFile))
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := b.removeUnfinished(); err != nil { // left by a broker that ended during a backup
		return "", err
	}
	path, made := filepath.Join(b.dir, name), filepath.Join(b.dir, unfinished+name)
	err = b.store.Checkpoint(made)
	if err == nil {
		err = SyncTree(made)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(made))
	}
	return path, syncDirectory(b.dir)
}

// Newest returns the time of the newest backup in dir, zero if there is none.
func Newest(dir string) time.Time {
	var newest time.Time
	entries, err := os.ReadDir(dir)
	if err != nil {
		return newest // no readable backup
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && checkName(e.Name()) == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
}

func (b *Backups) removeUnfinished() error {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			if err := os.RemoveAll(filepath.Join(b.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// lock keeps two brokers that share a directory from removing each other's unfinished
// backups. The system releases it when the process ends.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // below the directory that the operator chose
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s: another broker is writing a backup here: %w", filepath.Dir(path), err)
	}
	return func() { _ = f.Close() }, nil // closing the file releases the lock
}

// makeDirectory creates a directory unless it exists, but not its parents.
func makeDirectory(dir string) error {
	err := os.Mkdir(dir, 0o750)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(dir))
}

// SyncTree makes a directory with all its contents durable.
func SyncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncDirectory(path) // or file: the system call is the same
	})
}

func syncDirectory(path string) error {
	f, err := os.Open(path) //nolint:gosec // the operator's own directory
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Copy copies a directory of files into a new one and returns the number of bytes.
func Copy(to, from string, copied func(n int64)) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o750); err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue // a store contains nothing else
		}
		n, err := copyFile(filepath.Join(to, e.Name()), filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		copied(n)
	}
	return nil
}

func copyFile(to, from string) (n int64, err error) {
	in, err := os.Open(from) //nolint:gosec // named by the operator
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640) //nolint:gosec // named by the operator
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(out, in)
	return n, errors.Join(err, out.Sync(), out.Close())
}

// Rename durably renames a directory, replacing an empty one.
func Rename(from, to string) error {
	if err := syscall.Rename(from, to); err != nil { // os.Rename refuses the empty one
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return syncDirectory(filepath.Dir(to))
}
