package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/faisca/fila/engine/consumers"
)

// release takes a lease out of the register of consumers when it ends. A retrying message is in none.
func (t *leaseTable) release(m *message) {
	if m.held != nil {
		t.register.End(m.held)
		m.held = nil
	}
}

// recoveredLease is a lease that was read from the store.
type recoveredLease struct {
	m        *message
	consumer string
}

// registerAgain puts leases that were read from the store into the register of consumers, in the order in which they
// began. The clients that hold them are not known any more.
func (c *core) registerAgain(found []recoveredLease) {
	slices.SortFunc(found, func(a, b recoveredLease) int {
		return cmp.Or(cmp.Compare(a.m.since, b.m.since), slices.Compare(a.m.id[:], b.m.id[:]))
	})
	for _, f := range found {
		f.m.held = c.leases.register.Lease(c.leases.consumerOf(nil, f.m.key.queue, f.consumer), min(f.m.since, c.now))
	}
}

// Consumer is a client that waits for messages of a queue, or holds leases of it, under a name.
type Consumer struct {
	Client   uint64    // its id; 0: not known, the leases began before the start of the broker
	Name     string    // that its leases give, or empty
	Queues   int       // that it waits for; 0: it does not wait
	Until    time.Time // end of the wait; zero: it has none
	Leases   int64
	LeasedAt time.Time // when the oldest of its leases began; zero: it holds none
}

// Consumers returns a page of the consumers of a queue in the order in which they came, at most count, and the cursor of
// the next page, 0 at the end. One that waits or holds leases throughout a listing is listed exactly once. The error is
// ErrNoQueue.
func (tx *Tx) Consumers(queue string, cursor uint64, count int) (next uint64, list []Consumer, err error) {
	c := tx.core
	q, err := c.queueNamed(queue)
	if err != nil {
		return 0, nil, err
	}
	next, looked := q.consumers.Walk(cursor, func(who *consumers.Consumer) bool {
		if len(list) == count {
			return false
		}
		i := Consumer{Client: who.Client(), Name: who.Name()}
		n, began := who.Leases()
		if i.Leases = n; n > 0 {
			i.LeasedAt = unix(began)
		}
		if who.Waits() {
			w := c.waits.parked[i.Client].wait
			if i.Queues = len(w.nodes); w.until > 0 {
				i.Until = unix(w.until)
			}
		}
		list = append(list, i)
		return true
	})
	c.spend(looked / consumersPerUnit)
	return next, list, nil
}

// consumersPerUnit is the number of consumers that a unit of work pays for.
const consumersPerUnit = 16
