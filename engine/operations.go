package engine

import "slices"

// operations is what runs for long beside the commands: the count after a start, redrives,
// a backup.
type operations struct {
	census    *census    // counts what the store held at start; nil: done
	uncounted []*Task    // wait for the end of the census
	redrives  []*redrive // under way
	backups   backups

	unchecked
}

func (o *operations) reset() { o.census, o.uncounted, o.redrives = nil, nil, nil }

func (o *operations) next(*core) int64 {
	at := int64(never)
	for _, j := range o.redrives {
		if j.page == nil {
			at = min(at, j.nextAt)
		}
		if j.task != nil {
			at = min(at, j.began+redrivePatience)
		}
	}
	return at
}

// expire lets redrives go on.
func (o *operations) expire(c *core) {
	for _, j := range slices.Clone(o.redrives) {
		if j.page == nil && j.nextAt <= c.now {
			c.advance(j)
		}
		if t := j.task; t != nil && t.wait != nil && j.began+redrivePatience <= c.now {
			c.run(t)
		}
	}
}
