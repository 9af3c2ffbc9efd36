package engine

import (
	"time"

	"github.com/faisca/fila/internal/yield"
)

// company decides whether an open batch waits for more tasks though the committer is free.
//
// Those whose tasks the last commit has released are about to send their next ones, but
// need the processor for it: a batch that is cut at once has the few of them that were
// first, and all others wait for two commits instead of one. So everybody who is ready
// goes first, as long as that brings something. It never waits for somebody who may come.
type linger struct {
	poll  *yield.Poll
	since time.Time // the committer is free, and there is a batch; zero: it is not so
	n     int       // tasks in the batch when others went first
	empty int       // how often that brought nothing
}

const (
	// lingerEmptyMax is how often in a row it may bring nothing: a client on another
	// processor may just have read its reply.
	lingerEmptyMax = 2
	// lingerMax is how long a batch waits at most, which is as long as a fast disk
	// takes for a commit.
	lingerMax = 300 * time.Microsecond
)

// wait lets others go first, and reports whether it did. n is how many tasks the batch
// has, released how many the last commit had: one alone has nobody to wait for.
func (c *linger) wait(now time.Time, n, released int) bool {
	if n == 0 || released < 2 {
		return false
	}
	if c.since.IsZero() {
		c.since, c.n, c.empty = now, n, -1
	}
	if c.empty++; n > c.n {
		c.n, c.empty = n, 0
	}
	if c.empty >= lingerEmptyMax || now.Sub(c.since) >= lingerMax {
		return false
	}
	c.poll.Wait()
	return true
}

// over is called when a batch is cut.
func (c *linger) over() { c.since = time.Time{} }
