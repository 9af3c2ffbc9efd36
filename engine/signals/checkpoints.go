package signals

import "math"

// Never is a time that does not come.
const Never = math.MaxInt64

// checkpoints say when the pairs of a table are written to which something was added since their records:
//
//	written ──addition──▶ waiting: at is set ──due──▶ writing: left > 0 ──▶ written
//	                        ▲                             │
//	                        └──added to meanwhile─────────┘
//
// A checkpoint writes the pairs that had changed when it began, in as many slices as the caller likes.
type checkpoints struct {
	pairs    *Table
	every    int64 // nanoseconds from an addition to the checkpoint
	at       int64 // when the next checkpoint begins; Never: nothing is to be written, or one is under way
	left     int   // pairs that the checkpoint under way has still to write
	draining bool  // all is to be written at once
}

// newCheckpoints returns the checkpoints of a table, every nanoseconds apart.
func newCheckpoints(pairs *Table, every int64) checkpoints {
	return checkpoints{pairs: pairs, every: every, at: Never}
}

// Next returns when there is something to write: now, if a checkpoint is under way.
func (c *checkpoints) Next(now int64) int64 {
	if c.left > 0 {
		return now
	}
	return c.at
}

// Begin begins a checkpoint if one is due.
func (c *checkpoints) Begin(now int64) {
	if c.at <= now {
		c.left, c.at = c.pairs.Unwritten(), Never
	}
}

// Writing reports whether a checkpoint is under way.
func (c *checkpoints) Writing() bool { return c.left > 0 }

// Take returns the next pair that the checkpoint under way has to write, and whether it is the last; nil: those that are left
// were removed since it began. The caller makes its record.
func (c *checkpoints) Take() (p *Pair, last bool) {
	if p = c.pairs.NextUnwritten(); p == nil {
		c.left = 0
		return nil, false
	}
	c.left--
	return p, c.left == 0
}

// Arm sets the time of the next checkpoint if there is something to write. It follows each addition, and each part of a
// checkpoint. After Drain that does not wait.
func (c *checkpoints) Arm(now int64) {
	switch {
	case c.left > 0 || c.pairs.Unwritten() == 0:
	case c.draining:
		c.at = min(c.at, now)
	case c.at == Never:
		c.at = now + c.every
	}
}

// Drain makes a checkpoint due, also for what is added later.
func (c *checkpoints) Drain(now int64) {
	c.draining = true
	c.Arm(now)
}

// Draining reports whether something has to be written after Drain.
func (c *checkpoints) Draining() bool { return c.draining && c.pairs.Unwritten() > 0 }

// Forgotten returns how many pairs have changed that no checkpoint is going to write.
func (c *checkpoints) Forgotten() int {
	if c.left == 0 && c.at == Never {
		return c.pairs.Unwritten()
	}
	return 0
}
