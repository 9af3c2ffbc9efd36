package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Swap replaces a directory by another and keeps the old one. It may be interrupted at
// any time and is then resumed. The new directory contains a mark until the old one has
// its new name:
//
//	DIR       DIR-repairing   the next run
//	no mark   any, or none    removes DIR-repairing: it is incomplete
//	mark      no mark         keeps DIR-repairing, which is the old one, and removes the mark
//	mark      none            removes the mark
//	none      mark            renames it to DIR, and removes the mark
type Swap struct {
	Dir  string // the directory
	Made string // the new one while it is made
	Kept string // the old one afterwards
}

// mark is a file in the new directory until the old one is kept.
const mark = "fila-repairing"

// NewSwap returns the paths of a swap. Kept is named after the time.
func NewSwap(dir string, now time.Time) *Swap {
	return &Swap{Dir: dir, Made: dir + "-repairing", Kept: dir + "-damaged-" + now.UTC().Format("20060102-150405")}
}

// Resume completes an earlier run that was interrupted after its point of no return.
func (s *Swap) Resume() error {
	marked, err := s.marked(s.Made)
	if err != nil {
		return err
	}
	_, gone := os.Stat(s.Dir)
	if marked && errors.Is(gone, fs.ErrNotExist) {
		if err := Rename(s.Made, s.Dir); err != nil {
			return err
		}
	}
	if swapped, err := s.marked(s.Dir); err != nil || !swapped {
		return err
	}
	return s.keep()
}

// Discard removes an incomplete new directory, after Resume.
func (s *Swap) Discard() error { return os.RemoveAll(s.Made) }

// Begin creates the new directory, empty but for the mark.
func (s *Swap) Begin() error {
	if err := os.Mkdir(s.Made, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.Made, mark), os.O_CREATE|os.O_WRONLY, 0o640) //nolint:gosec // beside the operator's own directory
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), syncDirectory(s.Made), syncDirectory(filepath.Dir(s.Made)))
}

// Do swaps the new directory with the old one.
func (s *Swap) Do() error {
	err := exchange(s.Dir, s.Made)
	if err == nil {
		err = syncDirectory(filepath.Dir(s.Dir))
	} else if err = Rename(s.Dir, s.Kept); err == nil { // not every file system can
		err = Rename(s.Made, s.Dir)
	}
	if err != nil {
		return fmt.Errorf("put %s in the place of %s: %w", s.Made, s.Dir, err)
	}
	return s.keep()
}

// Exchange durably swaps two directories beside each other. Where the file system cannot do that in
// one step it takes three, and a crash between them leaves a missing.
func Exchange(a, b string) error {
	if err := exchange(a, b); err == nil {
		return syncDirectory(filepath.Dir(a))
	}
	aside := b + "-aside"
	for _, names := range [][2]string{{a, aside}, {b, a}, {aside, b}} {
		if err := Rename(names[0], names[1]); err != nil {
			return err
		}
	}
	return nil
}

// keep renames the old directory and removes the mark.
func (s *Swap) keep() error {
	if _, err := os.Stat(s.Made); err == nil {
		if err := Rename(s.Made, s.Kept); err != nil {
			return err
		}
	}
	return errors.Join(os.Remove(filepath.Join(s.Dir, mark)), syncDirectory(s.Dir))
}

func (s *Swap) marked(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, mark))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
