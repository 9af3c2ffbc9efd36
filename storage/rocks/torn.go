//go:build cgo

package rocks

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RocksDB 6 keeps what it could not append to a log, and appends it once more when the
// log is closed: behind the part that was written, where it is damage in the middle of the
// log instead of a torn end. So logs are cut back, once they are closed, to what they were
// when the write failed. Nothing was acknowledged since.

// logSizes is the size of each log.
type logSizes map[string]int64

func sizesOfLogs(dir string) logSizes {
	sizes := logSizes{}
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return sizes
	}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			sizes[name] = info.Size()
		}
	}
	return sizes
}

// cutBack removes what was appended since.
func (l logSizes) cutBack() error {
	var all error
	for name, size := range l {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= size {
			continue
		}
		if err == nil {
			err = os.Truncate(name, size)
		}
		all = errors.Join(all, err)
	}
	return all
}

// tore notes that a write failed.
func (s *Store) tore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.torn == nil {
		s.torn = sizesOfLogs(s.path)
	}
}

// mendLogs cuts the logs back after a failed write, when they are closed.
func (s *Store) mendLogs() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.torn.cutBack(); err != nil {
		return reason(firstOf(err))
	}
	s.torn = nil
	return nil
}
