package broker

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"
)

// diskInterval is how often the figures of the disk are looked up.
const diskInterval = 5 * time.Second

// disk has the figures that INFO shows of the disk. They are looked up beside everything
// else, so that nothing waits for a disk that does not answer: the figures are then old.
type disk struct {
	path       string // of the store
	size, free atomic.Uint64
}

// figures are the space that the store takes, and what is left beside it, in bytes.
func (d *disk) figures() (size, free uint64) { return d.size.Load(), d.free.Load() }

// follow looks the figures up until ctx ends.
func (d *disk) follow(ctx context.Context) {
	tick := time.NewTicker(diskInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.look()
		}
	}
}

func (d *disk) look() {
	size := uint64(0)
	// Files come and go meanwhile; what is gone takes no space.
	_ = filepath.WalkDir(d.path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil {
			if info, err := e.Info(); err == nil {
				size += occupied(info)
			}
		}
		return nil
	})
	d.size.Store(size)
	d.free.Store(freeBytes(d.path))
}
