package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/queueset"
)

// Order in the simulation. In a part of the seeds, the queue a is ordered: all that clients do to
// it, and all that befalls it, must leave the order of each key as it is. The oracle judges the
// deliveries that clients have received, in the order in which the engine decided them.

// orderOracle knows the deliveries of an ordered queue.
type orderOracle struct {
	on       bool
	received map[string][]orderedDelivery // by key and rank, in the order of their arrival
	from     map[ID]string                // the queue of the last delivery
	handed   bool                         // a message, in this step
	checks   int                          // pairs of deliveries that were compared
}

type orderedDelivery struct {
	id    ID
	order int // of the engine's decision
}

// inOrder chooses the seeds in which the queue a is ordered.
func (s *sim) inOrder(o QueueOptions) QueueOptions {
	if s.w.steps%4 == 1 || s.mutant == orderBroken || s.mutant == orderNotCommitted {
		s.oracle.order.on = true
		o.Given = maps.Clone(o.Given)
		o.Given[queueset.Ordered] = 1
	}
	return o
}

// plantOrder sets the conditions in which the mutant orderNotCommitted is found.
func (s *sim) plantOrder() {
	if s.mutant == orderNotCommitted || s.mutant == replacementNotCommitted {
		s.w.lazy, s.w.crash, s.w.powerLoss, s.w.lost = 0.7, 0.05, 0, 0
	}
}

// refusesOption reports whether an enqueue was refused because an ordered queue does not take one
// of its options. One that is not refused is a fault.
func (s *sim) refusesOption(req *Enqueue, err error) bool {
	if !s.oracle.order.on || req.Queue != "a" || req.Priority == nil && req.Delay == 0 {
		return false
	}
	if err == nil {
		s.oracle.fail("an ordered queue has taken a message with a priority or a delay")
	}
	return errors.Is(err, ErrInvalid)
}

// inOrder judges a delivery that a client has received: no younger message of the key was
// delivered before it, no older one that is surely there has to come first, and no other message
// of the key is out.
func (o *oracle) inOrder(d *Delivery, order int) {
	id := d.Receipt.ID
	if o.order.from == nil {
		o.order.from = map[ID]string{}
	}
	if o.order.from[id] = d.Queue; !o.order.on || d.Queue != "a" {
		return
	}
	o.order.handed = true
	line := fmt.Sprint(d.Key, "/", id.Rank())
	if o.order.received == nil {
		o.order.received = map[string][]orderedDelivery{}
	}
	for _, r := range o.order.received[line] {
		o.order.checks++
		first, second := r, orderedDelivery{id, order}
		if second.order < first.order {
			first, second = second, first
		}
		if first.order == second.order && first.id != second.id {
			o.fail("%s and %s of %s were delivered at once", first.id, second.id, line)
		}
		if slices.Compare(second.id[:], first.id[:]) < 0 && !o.mayHaveDied(second.id) {
			o.fail("%s of %s was delivered before %s, which is older", first.id, line, second.id)
		}
	}
	o.order.received[line] = append(o.order.received[line], orderedDelivery{id, order})
	for _, m := range o.byID {
		if m.id == id || m.tag == "" || m.queue() != "a" || o.order.from[m.id] == "a.dlq" || fmt.Sprint(keyOfTag(m.tag), "/", m.id.Rank()) != line {
			continue
		}
		if m.sure && m.leasedIn < order && m.asking == 0 && !m.perhapsGone && !o.taken(m) && o.now.Before(m.leaseUntil) {
			o.fail("%s of %s was delivered while a client holds %s until %v", id, line, m.id, m.leaseUntil)
		}
		if slices.Compare(m.id[:], id[:]) < 0 && o.atHome(m) && m.moving == 0 && !m.disturbed {
			o.fail("%s of %s was delivered, and %s comes first", id, line, m.id)
		}
	}
}

// mayHaveDied reports whether a message may have come back from the dead-letter queue, at its place
// before younger ones.
func (o *oracle) mayHaveDied(id ID) bool {
	m := o.byID[id]
	_, mortal := o.ends[id]
	return id.Nanos() <= o.redrove && (o.attempts > 0 || mortal || m != nil && m.mayDie)
}

func keyOfTag(tag string) string {
	_, rest, _ := strings.Cut(tag, "/")
	key, _, _ := strings.Cut(rest, "/")
	return key
}

// unordered lets the mutant orderBroken do a nack as in a queue that is not ordered: the message is
// delayed, and its key goes on.
func (s *sim) unordered(c *core) (back func()) {
	q := c.queues.byName["a"]
	if s.mutant != orderBroken || q == nil {
		return func() {}
	}
	q.set.Values[queueset.Ordered] = 0
	return func() { q.set.Values[queueset.Ordered] = 1 }
}

// breakOrder lets the mutant orderNotCommitted forget which batches have removed messages.
func (s *sim) breakOrder() {
	if s.mutant == orderNotCommitted {
		for i, all := 0, s.step.core.queues.byName["a"].sequence.keys; i < len(all); i++ {
			all[i].removed = 0
		}
	}
}
