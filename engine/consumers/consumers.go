package consumers

import (
	"fmt"

	"github.com/faisca/fila/engine/internal/intrusive"
)

// Register is what the consumers of all queues have in common. The zero value is ready for use.
type Register struct {
	idle intrusive.List[Consumer, *Consumer] // the one that is idle longest first
	free *Lease                              // leases that have ended, to be used again, linked by next
	kept int                                 // how many
}

const (
	// idleMax bounds the consumers of all queues that are kept although they neither wait nor hold leases.
	idleMax = 1024
	// keptMax bounds the leases that are kept to be used again.
	keptMax = 4096
)

// Queue knows the consumers of one queue. The zero value has none.
type Queue struct {
	byName  map[ident]*Consumer // idle ones included
	roster  intrusive.Roster[Consumer]
	holding int // consumers that hold leases

	first, last *Lease // of all consumers, in the order in which they began
}

// ident tells the consumers of a queue apart.
type ident struct {
	client uint64
	name   string
}

// Consumer is a client that leases messages of a queue under a name.
type Consumer struct {
	intrusive.Links[Consumer] // in Register.idle, while it is idle

	ident
	queue   *Queue // nil: it was forgotten
	seq     uint64 // its number in the roster
	waiting int    // requests of it that wait for messages
	leases  int64

	first, last *Lease // in the order in which they began
}

// Lease is a lease that a consumer holds.
type Lease struct {
	consumer *Consumer
	began    int64 // Unix nanoseconds

	prev, next       *Lease // of the consumer
	prevInQ, nextInQ *Lease
}

// Name returns the name that the leases of the consumer give, empty if they give none.
func (c *Consumer) Name() string { return c.name }

// Client returns the id of the client, 0 if it is not known: the lease began before the start of the broker.
func (c *Consumer) Client() uint64 { return c.client }

// Leases returns how many leases the consumer holds, and when the oldest of them began, in Unix nanoseconds.
func (c *Consumer) Leases() (n, oldest int64) {
	if c.first != nil {
		oldest = c.first.began
	}
	return c.leases, oldest
}

// Waits reports whether the consumer waits for messages.
func (c *Consumer) Waits() bool { return c.waiting > 0 }

// Name returns the name that the consumer of a lease has given; a nil lease has none.
func (l *Lease) Name() string {
	if l == nil {
		return ""
	}
	return l.consumer.name
}

// Queue returns the consumers of the queue of the lease.
func (l *Lease) Queue() *Queue { return l.consumer.queue }

// Holding returns how many consumers hold leases of the queue, and when the lease began that began last, in Unix
// nanoseconds, 0 if there is none.
func (q *Queue) Holding() (consumers int, newest int64) {
	if q.last != nil {
		newest = q.last.began
	}
	return q.holding, newest
}

// Of returns the consumer of a queue with a client and a name. It looks at last first, which may be nil or of another
// queue.
func (r *Register) Of(q *Queue, client uint64, name string, last *Consumer) *Consumer {
	if last != nil && last.queue == q && last.client == client && last.name == name {
		return last
	}
	who := ident{client, name}
	if c := q.byName[who]; c != nil {
		return c
	}
	c := &Consumer{ident: who, queue: q}
	if q.byName == nil {
		q.byName = map[ident]*Consumer{}
	}
	q.byName[who] = c
	c.seq = q.roster.Add(c)
	r.rest(c)
	return c
}

// rest makes a consumer idle, and forgets the one that is idle longest if there are too many.
func (r *Register) rest(c *Consumer) {
	r.idle.PushBack(c)
	if r.idle.Len() <= idleMax {
		return
	}
	old := r.idle.Head()
	r.idle.Remove(old)
	delete(old.queue.byName, old.ident)
	old.queue.roster.Remove(old.seq)
	old.queue = nil
}

// present reports whether the consumer waits or holds leases.
func (c *Consumer) present() bool { return c.waiting > 0 || c.leases > 0 }

// Wait changes the number of requests of a consumer that wait for messages.
func (r *Register) Wait(c *Consumer, by int) {
	if !c.present() {
		r.idle.Remove(c)
	}
	if c.waiting += by; !c.present() {
		r.rest(c)
	}
}

// Lease begins a lease at a time in Unix nanoseconds. Leases are given in the order of these times.
func (r *Register) Lease(c *Consumer, began int64) *Lease {
	if !c.present() {
		r.idle.Remove(c)
	}
	l, q := r.free, c.queue
	if l == nil {
		l = new(Lease)
	} else {
		r.free, r.kept = l.next, r.kept-1
	}
	*l = Lease{consumer: c, began: began, prev: c.last, prevInQ: q.last}
	if c.last != nil {
		c.last.next = l
	} else {
		c.first = l
		q.holding++
	}
	if q.last != nil {
		q.last.nextInQ = l
	} else {
		q.first = l
	}
	c.last, q.last = l, l
	c.leases++
	return l
}

// End ends a lease, which must not be used afterwards.
func (r *Register) End(l *Lease) {
	c := l.consumer
	q := c.queue
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		c.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		c.last = l.prev
	}
	if l.prevInQ != nil {
		l.prevInQ.nextInQ = l.nextInQ
	} else {
		q.first = l.nextInQ
	}
	if l.nextInQ != nil {
		l.nextInQ.prevInQ = l.prevInQ
	} else {
		q.last = l.prevInQ
	}
	*l = Lease{}
	if r.kept < keptMax {
		l.next, r.free, r.kept = r.free, l, r.kept+1
	}
	if c.leases--; c.leases == 0 {
		q.holding--
		if c.waiting == 0 {
			r.rest(c)
		}
	}
}

// Walk visits the consumers after the cursor, 0 being the beginning, that wait or hold leases, in the order in which they
// came, until visit returns false. It returns the next cursor, 0 at the end. looked is how many it has looked at.
func (q *Queue) Walk(cursor uint64, visit func(*Consumer) bool) (next uint64, looked int) {
	next = q.roster.WalkWhile(cursor, func(c *Consumer) bool {
		looked++
		return !c.present() || visit(c)
	})
	return next, looked
}

// Check verifies the register of a queue: its numbers and lists agree, and it has as many leases and waits.
func (q *Queue) Check(leases int64, waiting int) error {
	holding, n, waits := 0, int64(0), 0
	for c := range q.roster.All() {
		if q.byName[c.ident] != c || c.queue != q {
			return fmt.Errorf("consumer %d %q is not found by its name", c.client, c.name)
		}
		of := int64(0)
		for l := c.first; l != nil; l = l.next {
			if of++; l.consumer != c || l.next == nil && c.last != l {
				return fmt.Errorf("the leases of consumer %d %q are broken", c.client, c.name)
			}
		}
		if of != c.leases {
			return fmt.Errorf("consumer %d %q has %d leases, %d are counted", c.client, c.name, of, c.leases)
		}
		if of > 0 {
			holding++
		}
		n += of
		waits += c.waiting
	}
	if n != leases || holding != q.holding || waits != waiting {
		return fmt.Errorf("%d consumers with %d leases and %d waits, want %d, %d and %d", holding, n, waits, q.holding, leases, waiting)
	}
	return nil
}
