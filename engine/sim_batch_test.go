package engine

import (
	"fmt"
	"maps"
	"time"

	"github.com/faisca/fila/internal/queueset"
)

// Batches in the simulation: a part of the leases takes messages of one key only, and in a part of the seeds the keys of
// the queue b gather messages.

// inBatches chooses the seeds in which the queue b has a BATCH.
func (s *sim) inBatches(o QueueOptions) QueueOptions {
	if s.w.steps%3 == 1 || s.mutant == gatherLost {
		o.Given = maps.Clone(o.Given)
		o.Given[queueset.Batch], o.Given[queueset.BatchWait] = uint64(2+s.w.steps%4), 200
	}
	return o
}

// mustGather returns the keys of the queue b that must not deliver: they are counted, have fewer messages than a batch, of
// which all are in memory, were never delivered and were enqueued so lately that none has waited.
func (s *sim) mustGather(c *core) map[string]string {
	q := c.queues.byName["b"]
	if q == nil || q.batch() == 0 || q.regather || s.oracle.setBack > 0 { // ids may be later than the time
		return nil
	}
	wait := q.set.Values.Duration(queueset.BatchWait)
	must := map[string]string{}
	for k := range q.roster.All() {
		if n := k.total - k.leased - k.delayed; !k.counted || n >= q.batch() || k.window.More() || n != int64(k.window.Len()) {
			continue
		}
		gathers := k.window.Len() > 0 && k.gathersUntil > c.now // the message that began it may have been cancelled, or have expired
		for _, m := range k.window.All() {
			gathers = gathers && m.deliveries == 0 && m.attempt == 1 && m.id.Nanos() > s.oracle.redrove && c.now < m.id.Nanos()+int64(wait-time.Millisecond)
		}
		if gathers {
			must[k.name] = fmt.Sprintf("%d of %d, until %d, now %d", k.window.Len(), q.batch(), k.gathersUntil, c.now)
		}
	}
	return must
}

// keptBack judges a lease: it has nothing of the keys that must gather.
func (s *sim) keptBack(must map[string]string, ds []*Delivery) {
	for _, d := range ds {
		if d.Queue == "b" && must[d.Key] != "" {
			s.oracle.fail("message %s of key %s is delivered before its key has a batch: %s", d.Receipt.ID, d.Key, must[d.Key])
		}
	}
}

// gathered is a key that gathers, since it was seen to first.
type gathered struct {
	since     int64
	delivered uint64 // each delivery has it judged anew
	key       uint64
	core      *core // of a node
	epoch     uint64
	first     ID // another one may have begun to gather within a step
}

// overdueBatches finds keys that gather longer than BATCHWAIT, and whose timer is not due in the next turn. The mutant gatherLost has them sleep
// for ever after a restart.
func (s *sim) overdueBatches(c *core) {
	if s.gatherers == nil {
		s.gatherers = map[string]gathered{}
	}
	for _, q := range c.queues.byName {
		for k := range q.roster.All() {
			is := gathered{s.step.now.UnixNano(), k.stats.Delivered, k.Seq(), c, c.epoch, ID{}}
			line := q.name + "/" + k.name
			if !k.gathers() || k.window.Len() == 0 {
				delete(s.gatherers, line)
				continue
			}
			is.first = k.window.First().id
			if was, ok := s.gatherers[line]; !ok || was.delivered != is.delivered || was.key != is.key || was.core != c || was.epoch != c.epoch || was.first != is.first {
				s.gatherers[line] = is
			}
			if s.mutant == gatherLost && c.epoch > 1 && k.gathersUntil < c.now+int64(time.Hour) {
				k.gathersUntil += int64(1000 * time.Hour)
			}
			if late := is.since - s.gatherers[line].since - int64(q.set.Values.Duration(queueset.BatchWait)+time.Second); late > 0 && c.now >= is.since && (k.gathersUntil > c.now || c.gather.next(c) > c.now) {
				s.oracle.fail("key %s of %s gathers, and its time was over %v ago", k.name, q.name, time.Duration(late))
			}
		}
	}
}

// leaseOneKey makes a lease one of a single key, in some of the cases. It draws no random number.
func (s *sim) leaseOneKey(req *LeaseRequest) {
	for _, q := range req.Queues {
		if s.oracle.order.on && q == "a" { // it refuses them
			return
		}
	}
	req.SameKey = s.decisions%3 == 0
}

// ofOneKey judges a lease of one key: all of its messages are of that, and one that has fewer than it asked for has left
// nothing that may follow. Leases that ended while it read the others (inParts) are left out of its answer.
func (s *sim) ofOneKey(tx *Tx, req *LeaseRequest, ds []*Delivery, inParts bool) {
	if !req.SameKey || len(ds) == 0 {
		return
	}
	for _, d := range ds {
		if d.Queue != ds[0].Queue || d.Key != ds[0].Key {
			s.oracle.fail("a lease of one key has messages of %s/%s and %s/%s", ds[0].Queue, ds[0].Key, d.Queue, d.Key)
		}
	}
	q := tx.core.queues.byName[ds[0].Queue]
	if q == nil || inParts || len(ds) >= req.Count {
		return
	}
	if k := q.keys.get(ds[0].Key); k != nil && !k.paused && !q.set.PausedOut {
		if k.window.Len() > 0 && q.order.Follows(&k.Key) {
			s.oracle.fail("a lease of %d messages of one key has %d, and another one may follow", req.Count, len(ds))
		}
		if k.window.Awaiting() && !k.window.LastReadEmpty() {
			s.oracle.fail("a lease of %d messages of one key has %d, and has not read the others", req.Count, len(ds))
		}
	}
}
