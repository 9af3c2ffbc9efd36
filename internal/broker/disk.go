package broker

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"
)

// diskInterval is the time between two measurements of the disk.
const diskInterval = 5 * time.Second

// disk measures the disk for INFO. It has a goroutine of its own: if the disk does not
// answer, INFO shows old figures and nothing waits.
type disk struct {
	path       string // of the store
	size, free atomic.Uint64
}

// figures returns the space that the store takes and the free space, in bytes.
func (d *disk) figures() (size, free uint64) { return d.size.Load(), d.free.Load() }

// follow measures until ctx ends.
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
	// Files may vanish during the walk: a missing file takes no space.
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
