package engine

import (
	"time"

	"github.com/faisca/fila/internal/hook"
)

// expireLease takes a message back whose consumer has not answered in time.
func (c *core) expireLease(m *message) {
	q := m.key.queue
	if m.key.purged() {
		c.dropLease(m)
		return
	}
	if m.restored && m.until <= c.health.bootTime {
		// It ended while the broker was down: nobody could have acked it.
		c.giveBack(m)
		return
	}
	if h := c.out.snapshot.Hook(q.name, hook.OnFailure); h != nil && !m.judged && !c.ttlExpired(m) {
		// The lease is over: its receipt is no good any more. But the message stays
		// where it is until the hook has decided, or a time after which nobody waits
		// for that.
		m.judged = true
		m.until = c.now + verdictMax
		c.leases.ends.fix(m)
		fence := m.fence
		c.askFailure(h, m, m.attempt, "", func(c *core, d hook.FailureDecision) {
			if m.status == leased && m.fence == fence && c.leases.byID[m.id] == m && !m.key.purged() {
				c.endExpired(m, &d)
			}
		})
		return
	}
	c.endExpired(m, nil)
}

// verdictMax is how long an expired message waits for its hook: far longer than
// any hook may run, far shorter than anybody would notice.
const verdictMax = int64(5 * time.Second)

// endExpired ends the lease of a message whose time is over.
func (c *core) endExpired(m *message, d *hook.FailureDecision) {
	q := m.key.queue
	q.totals.leaseExpired++
	dead, delay, reason := c.fate(q, m.attempt, d)
	if d == nil || d.Action == hook.FailureDefault && d.Delay == nil {
		delay = 0 // without a word of the hook an expired message is ready at once
	}
	over := c.endsByTime(m, dead)
	if over && c.hasDLQ(q) || dead && !over { // it goes to another queue
		if err := c.loadBody(m); err != nil {
			c.cfg.Log.Error().Err(err).Str("queue", q.name).Msg("a message cannot be read and stays leased")
			m.until = c.now + int64(q.backoff(m.attempt)) + int64(c.cfg.MendInterval)
			c.leases.ends.fix(m)
			return
		}
	}
	m.fail(c.now, "the lease expired")
	c.endLease(m)
	switch {
	case over:
		c.expireMessage(m)
	case dead:
		c.deadLetter(m, reason)
	default:
		c.retry(m, delay)
	}
}
