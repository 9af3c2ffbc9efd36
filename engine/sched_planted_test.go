package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/engine/dispatch"
)

// plantedFault breaks the engine after each event, in violation of one rule.
type plantedFault struct {
	rule  string
	plant func(c *core)
	batch int                    // messages of one key that a worker leases at a time; 0: one
	found func(s *schedSim) bool // by the records, or by the shares at the end
}

func plantedFaults() []plantedFault {
	apart := func(s *schedSim) bool { return s.apart > 0 }
	return []plantedFault{
		{"1: room is used at once", func(c *core) { c.order.Inside().HideRoom() }, 0, func(s *schedSim) bool { return s.broken > 0 }},
		{"2: queues take turns", func(c *core) {
			c.order.Inside().Favour(c.queues.byName["q0"].order)
		}, 0, func(s *schedSim) bool { return s.queues[1].got < s.queues[0].got/2 }},
		{"3: a key that waits is not passed by others", eachQueue(func(p dispatch.Inside, q *queue) { p.Postpone(q.order, 100) }), 0, apart},
		{"4: messages with several throttles get their share", eachQueue(func(p dispatch.Inside, q *queue) { p.UseUpTurns(q.order) }), 0, func(s *schedSim) bool { return s.severalShare() < 0.5 }},
		{"5: credit is never lost", eachKey(dispatch.Inside.TakeCredit), 0, apart},
		{"6: a key is visited in the round in which its credit suffices", eachQueue(func(p dispatch.Inside, q *queue) { p.Postpone(q.order, -1) }), 0, func(s *schedSim) bool { return s.apart > 0 || s.step.Check() != nil }},
		{"7: an explanation names the throttles that are full", eachKey(dispatch.Inside.Unname), 0, (*schedSim).misexplained},
		{"9: the order of delivery is told what a message costs", eachKey(dispatch.Inside.Misprice), 0, func(s *schedSim) bool { return s.apart > 0 || s.step.Check() != nil }},
		{"8: a throttle admits what it is set to", func(c *core) {
			c.order.Inside().Set("A", dispatch.Limits{Concurrency: 3})
		}, 0, func(*schedSim) bool { return false }},
		{"a batch is paid for", eachKey(dispatch.Inside.Forgive), 3, apart},
	}
}

// TestTheSimulationOfTheSchedulerFindsPlantedFaults, and none in an intact engine.
func TestTheSimulationOfTheSchedulerFindsPlantedFaults(t *testing.T) {
	for _, x := range plantedFaults() {
		t.Run(x.rule, func(t *testing.T) {
			if found, says := x.run(func(*core) {}); found {
				t.Errorf("nothing is planted, and it finds %s", says)
			}
			if found, says := x.run(x.plant); !found {
				t.Errorf("it has found nothing: %s", says)
			} else {
				t.Log(says)
			}
		})
	}
}

func (x *plantedFault) run(plant func(c *core)) (found bool, says string) {
	s := newSchedSim(1, nil)
	s.relaxed = true
	a, b := s.throttle(0, 0, 2), s.throttle(0, 0, 2)
	for range 2 {
		q := s.queue()
		q.endless(4, 1, 7, a)
		q.endless(4, 3, 2, a)
		q.endless(4, 1, 1, a)
		q.endless(4, 1, 1, b)
		q.endless(4, 3, 1, a, b)
		if x.batch > 0 {
			q.endless(6, 1, 1)
			q.endless(6, 4, 1)
		}
		for _, w := range s.crew(8, q) {
			w.count, w.same = max(x.batch, 1), x.batch > 0
		}
	}
	s.run(500*time.Second, func() bool {
		plant(s.step.core)
		found = found || x.rule[0] == '7' && x.found(s)
		return found
	})
	found = found || len(s.faults) > 0 || x.found(s)
	return found, fmt.Sprintf("%d times a message waited that could go, %d times two keys were too far apart, %d and %d messages of the queues, share of several throttles %.2f, faults %v, first %v",
		s.broken, s.apart, s.queues[0].got, s.queues[1].got, s.severalShare(), s.faults, s.reds)
}

// severalShare is the least fraction of its fair part that a class with several throttles got.
func (s *schedSim) severalShare() float64 {
	least := 1.0
	for _, q := range s.queues {
		for _, c := range q.classes {
			if part, _ := c.share(); len(c.throttles) > 1 {
				least = min(least, part)
			}
		}
	}
	return least
}

// misexplained reports whether the engine's explanation of a key disagrees with the records.
func (s *schedSim) misexplained() bool {
	for _, q := range s.queues {
		for _, k := range q.keys {
			if len(k.ready) == 0 {
				continue
			}
			var x Explanation
			req := &ExplainKey{Queue: q.name, Key: k.name}
			s.step.Do(&Task{Call: callFunc(func(tx *Tx) (err error) { x, err = tx.ExplainKey(req); return err })})
			blocked := map[string]bool{}
			for i := range x.BlockedBy {
				blocked[x.BlockedBy[i].Throttle] = true
			}
			for _, t := range k.ready[0].class.throttles {
				if !t.admits(k.ready[0]) && !blocked[t.name] {
					return true
				}
			}
		}
	}
	return false
}

// eachQueue does something to each queue, and eachKey to each key.
func eachQueue(do func(p dispatch.Inside, q *queue)) func(c *core) {
	return func(c *core) {
		for _, q := range c.queues.byName {
			do(c.order.Inside(), q)
		}
	}
}

func eachKey(do func(p dispatch.Inside, k *dispatch.Key)) func(c *core) {
	return eachQueue(func(p dispatch.Inside, q *queue) {
		for k := range q.roster.All() {
			do(p, &k.Key)
		}
	})
}
