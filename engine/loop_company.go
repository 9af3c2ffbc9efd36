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
type company struct {
	poll  *yield.Poll
	since time.Time // the committer is free, and there is a batch; zero: it is not so
	n     int       // tasks in the batch when others went first
	vain  int       // how often that brought nothing
}

const (
	// companyVain is how often in a row it may bring nothing: a client on another
	// processor may just have read its reply.
	companyVain = 2
	// companyMost is how long a batch waits at most, which is as long as a fast disk
	// takes for a commit.
	companyMost = 300 * time.Microsecond
)

// wait lets others go first, and reports whether it did. n is how many tasks the batch
// has, released how many the last commit had: one alone has nobody to wait for.
func (c *company) wait(now time.Time, n, released int) bool {
	if n == 0 || released < 2 {
		return false
	}
	if c.since.IsZero() {
		c.since, c.n, c.vain = now, n, -1
	}
	if c.vain++; n > c.n {
		c.n, c.vain = n, 0
	}
	if c.vain >= companyVain || now.Sub(c.since) >= companyMost {
		return false
	}
	c.poll.Wait()
	return true
}

// over is called when a batch is cut.
func (c *company) over() { c.since = time.Time{} }
