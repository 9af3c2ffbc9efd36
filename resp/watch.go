package resp

import (
	"sync"
	"time"
)

// watchEvery is how often a watched connection is examined.
const watchEvery = 100 * time.Millisecond

// Watch returns a channel that is closed when the client is lost: the connection is ending, or
// the client has closed its sending side. It is for a Session.Handle that waits for something
// else than the memory of a reply, since nothing is read meanwhile. On systems other than Linux
// only the end of the connection is noticed. end must be called when the wait is over.
func (c *Conn) Watch() (lost <-chan struct{}, end func()) {
	found, over := make(chan struct{}), make(chan struct{})
	go func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for !c.stop.Load() && !c.hungUp() {
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
		close(found)
	}()
	return found, sync.OnceFunc(func() { close(over) })
}
