//go:build !race

package engine

import (
	"fmt"
	"testing"
	"time"
)

// plantedFault breaks the engine after each event, in violation of one rule.
type plantedFault struct {
	rule  string
	plant func(c *core)
	found func(s *schedSim) bool // by the records, or by the shares at the end
}

func plantedFaults() []plantedFault {
	apart := func(s *schedSim) bool { return s.apart > 0 }
	return []plantedFault{
		{"1: room is used at once", func(c *core) {
			for _, t := range c.throttles.byName { // no throttle is found with new room
				t.listed = true
			}
		}, func(s *schedSim) bool { return s.broken > 0 }},
		{"2: queues take turns", func(c *core) {
			for _, t := range c.throttles.byName {
				if e := t.entries[c.queues.byName["q0"]]; e != nil {
					e.turn = 0
					if e.at >= 0 {
						t.line.Fix(e)
					}
				}
			}
		}, func(s *schedSim) bool { return s.queues[1].got < s.queues[0].got/2 }},
		{"3: a key that waits is not passed by others", func(c *core) {
			for _, k := range firstToGo(c) {
				k.moveTo(k.due + 100)
			}
		}, apart},
		{"4: messages with several throttles get their share", func(c *core) {
			for cl := range c.classes() {
				if len(cl.flows) > 1 {
					for i := range cl.flows { // as if the class had used its turns
						cl.flows[i].tag = cl.flows[i].entry.vtime + 1
					}
				}
			}
		}, func(s *schedSim) bool { return s.severalShare() < 0.5 }},
		{"5: credit is never lost", func(c *core) {
			for _, q := range c.queues.byName {
				for k := range q.roster.All() {
					k.credit = min(k.credit, 0)
				}
			}
		}, apart},
		{"6: a key is visited in the round in which its credit suffices", func(c *core) {
			for _, k := range firstToGo(c) {
				k.moveTo(max(k.due-1, k.base))
			}
		}, func(s *schedSim) bool { return s.apart > 0 || s.step.Check() != nil }},
		{"7: an explanation names the throttles that are full", func(c *core) {
			for _, q := range c.queues.byName {
				for k := range q.roster.All() {
					if k.class != nil && k.class.state == classWaiting {
						k.window[0].throttles.set = nil
					}
				}
			}
		}, (*schedSim).misexplained},
		{"9: the order of delivery is told what a message costs", func(c *core) {
			for _, q := range c.queues.byName {
				for k := range q.roster.All() {
					k.placedCost = 1
				}
			}
		}, func(s *schedSim) bool { return s.apart > 0 || s.step.Check() != nil }},
		{"8: a throttle admits what it is set to", func(c *core) { c.throttles.byName["A"].set.Concurrency = 3 }, func(*schedSim) bool { return false }},
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
		s.crew(8, q)
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

// firstToGo returns the first keys of the classes that have several keys.
func firstToGo(c *core) (keys []*fairKey) {
	for cl := range c.classes() {
		if cl.keys < 2 {
			continue
		}
		if k := cl.head().key(); !k.visited && k.due < cl.present()+50 {
			keys = append(keys, k)
		}
	}
	return keys
}

// moveTo moves a key to another round of its calendar.
func (k *fairKey) moveTo(round int64) {
	cl := k.class
	cl.remove(&k.dispatchKey)
	k.due = round
	cl.insert(&k.dispatchKey)
	if cl.state == classWaiting {
		cl.entry.waiting.Fix(cl)
	} else {
		cl.scheduler.open.fix(cl)
	}
}
