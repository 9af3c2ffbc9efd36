package engine

import "github.com/faisca/fila/storage"

// drain prepares the end: waits for messages end empty-handed, those for anything
// else are refused, and nothing is left to the lag.
func (c *core) drain() {
	for _, t := range c.waitingTasks() {
		if t.wait.begun() {
			c.finish(t, ErrStopped) // it has not happened, or not as a whole
		} else {
			c.finish(t, nil)
		}
	}
	for len(c.ops.redrives) > 0 {
		c.endRedrive(c.ops.redrives[0])
	}
	c.serve() // what their clients had sent behind them was submitted: it is done
	if c.health.failed != nil {
		return
	}
	for i := range c.leases.deferred {
		if c.leases.deferred[i].live() {
			c.writeLease(c.leases.deferred[i].m)
		}
	}
	c.leases.deferred = nil
	if c.ids.until > c.ids.last+1 {
		c.ids.until = c.ids.last + 1
		c.out.batch.Put(storage.State, storage.AppendStateKey(nil, stateIDs), encodeUint(uint64(c.ids.until))) //nolint:gosec // after 1970
		c.out.sync = true
	}
}
