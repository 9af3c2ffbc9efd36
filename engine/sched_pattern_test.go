package engine

import (
	"fmt"
	"testing"
	"time"
)

// patternSim has a pattern with a rate, and keys with an instance each, of which some have messages at times only.
func patternSim() *schedSim {
	s := newSchedSim(1, nil)
	s.relaxed = true
	q := s.queue()
	for i := range 6 {
		t := s.newThrottle()
		t.name, t.settings = fmt.Sprint("tenant:", i), []string{"tenant:*"}
		t.tokens, t.burst = 4, 4
		t.set(0.5, 4, 0)
		k := q.key(1, t)
		k.costs = func() uint32 { return 1 }
		if i%2 == 0 {
			k.keep = 4
			k.refill()
			continue
		}
		var again func()
		again = func() {
			k.put(1, 4, 0)
			s.after(time.Second, again)
		}
		s.after(time.Duration(i)*time.Second, again)
	}
	s.crew(8, q)
	return s
}

// TestTheRecordsFindPlantedFaultsOfPatterns, and none in an intact engine.
func TestTheRecordsFindPlantedFaultsOfPatterns(t *testing.T) {
	for what, plant := range map[string]func(c *core){
		"":                                    nil,
		"instances share one bucket":          func(c *core) { c.order.Inside().ShareBuckets() },
		"forgotten before its bucket is full": func(c *core) { c.order.Inside().ForgetInstances() },
	} {
		s := patternSim()
		s.run(120*time.Second, func() bool {
			if plant != nil {
				plant(s.step.core)
			}
			return false
		})
		if found := len(s.faults)+len(s.reds) > 0; found != (plant != nil) {
			t.Errorf("%s: faults %v, %v", what, s.faults, s.reds)
		}
		if plant == nil && s.deliveries < 200 {
			t.Errorf("%s: %d deliveries", what, s.deliveries)
		}
	}
}
