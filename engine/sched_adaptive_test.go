package engine

import (
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/adaptive"
)

// Adaptive throttles in the records of a schedSim: the limit follows from the acks, nacks and
// expiries alone, in millionths, and the checks of the records compare deliveries with it.

// schedLimit is the limit of an adaptive throttle.
type schedLimit struct {
	least, most int // most is 0 without a setting
	value       int64
	cutAt       int // moment of the last cut
	cuts        int
}

// set changes the bounds; 0 deletes the setting.
func (l *schedLimit) set(most int) {
	switch {
	case l == nil:
	case most == 0:
		*l = schedLimit{least: l.least}
	case l.most == 0:
		l.most, l.value = most, int64(most)*1_000_000
	default:
		l.most = most
		l.value = min(max(l.value, int64(min(l.least, most))*1_000_000), int64(most)*1_000_000)
	}
}

// adaptiveThrottle adds an adaptive throttle.
func (s *schedSim) adaptiveThrottle(least, most int) *schedThrottle {
	t := s.newThrottle()
	t.adaptive = &schedLimit{least: min(least, most)}
	t.set(0, 0, most)
	return t
}

// slots is how many leases the throttle allows at a time.
func (t *schedThrottle) slots() int {
	if t.adaptive != nil {
		return int(t.adaptive.value / 1_000_000)
	}
	return t.conc
}

// wentWell records the ack of a message.
func (s *schedSim) wentWell(m *schedMessage) {
	for _, t := range m.class.throttles {
		if l := t.adaptive; l != nil && l.most > 0 {
			l.value = grown(l.value, int64(l.most), int64(t.held))
		}
	}
}

// failedWork records a nack of a message, or the expiry of its lease.
func (s *schedSim) failedWork(m *schedMessage) {
	for _, t := range m.class.throttles {
		if l := t.adaptive; l != nil && l.most > 0 && m.began > l.cutAt {
			s.moment++
			l.cutAt = s.moment
			l.cuts++
			l.value = cut(l.value, int64(min(l.least, l.most)))
		}
	}
}

// sameLimits compares the limits that the engine shows with the records.
func (s *schedSim) sameLimits(t *testing.T) {
	t.Helper()
	for _, x := range s.throttles {
		l := x.adaptive
		if l == nil || l.most == 0 {
			continue
		}
		var info ThrottleInfo
		s.call(func(tx *Tx) error { info, _ = tx.Throttle(x.name); return nil })
		limit := limitOf(s.step.core, x.name)
		if limit == nil { // an instance that was forgotten equals a new one
			if l.value != int64(l.most)*1_000_000 || info.Cuts != 0 || info.Limit != float64(l.most) {
				t.Errorf("throttle %s is forgotten: it shows a limit of %f after %d cuts, want %d millionths", x.name, info.Limit, info.Cuts, l.value)
			}
			continue
		}
		cuts := uint64(l.cuts)
		if len(x.settings) > 0 { // an instance that was forgotten and came again has no earlier cuts
			cuts = min(cuts, info.Cuts)
		}
		if got := limitMillionths(limit); got != l.value || info.Cuts != cuts || info.Limit != float64(l.value)/1e6 {
			t.Errorf("throttle %s: limit %d after %d cuts, it shows %f; want %d after %d", x.name, got, info.Cuts, info.Limit, l.value, l.cuts)
		}
	}
}

// limitOf returns the limit of an adaptive throttle.
func limitOf(c *core, throttle string) *adaptive.Limit {
	t, _ := c.order.Inside().Throttle(throttle)
	return t.Adaptive
}

// adaptiveSim has two adaptive throttles, two queues with messages of one or both, and workers of
// which some fail, all at once in an outage.
func adaptiveSim(seed uint64) *schedSim {
	s := newSchedSim(seed, nil)
	a, b := s.adaptiveThrottle(1, 30), s.adaptiveThrottle(2, 12)
	for range 2 {
		q := s.queue()
		q.endless(4, 1, 1, a)
		q.endless(4, 3, 1, b)
		q.endless(4, 1, 2, a, b)
		for _, w := range s.crew(20, q) {
			w.fail, w.lapse = 0.03, 10*time.Second
		}
	}
	s.after(100*time.Second, func() {
		for _, w := range s.workers {
			w.fail = 1
		}
	})
	s.after(130*time.Second, func() {
		for _, w := range s.workers {
			w.fail = 0.01
		}
	})
	return s
}

// TestAdaptiveLimitsAreThoseOfTheRecords, to the millionth, with throttles that share messages,
// before, in and after an outage. Every free slot is used at once, and none above the limit.
func TestAdaptiveLimitsAreThoseOfTheRecords(t *testing.T) {
	for seed := range uint64(5) {
		s := adaptiveSim(seed)
		least, most := 1000, 0
		for range 300 {
			s.run(time.Second, nil)
			s.sameLimits(t)
			if s.seconds() > 50 {
				least, most = min(least, s.throttles[0].slots()), max(most, s.throttles[0].slots())
			}
		}
		for _, f := range s.faults {
			t.Errorf("seed %d: %s", seed, f)
		}
		if err := s.step.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if cuts := s.throttles[0].adaptive.cuts; least > 1 || most < 12 || cuts < 15 || s.deliveries < 1000 {
			t.Errorf("seed %d: limits from %d to %d, %d cuts, %d deliveries: the outage and the time after it are to be seen", seed, least, most, cuts, s.deliveries)
		}
	}
}

// TestTheRecordsFindPlantedFaultsOfAdaptiveThrottles.
func TestTheRecordsFindPlantedFaultsOfAdaptiveThrottles(t *testing.T) {
	keep := func(was map[*adaptive.Limit]adaptive.Limit, better func(now, was float64) bool) func(c *core) {
		return func(c *core) {
			for _, x := range c.order.Inside().AllThrottles() {
				if w, ok := was[x.Adaptive]; ok && better(x.Adaptive.Value(), w.Value()) {
					*x.Adaptive = w
				}
				was[x.Adaptive] = *x.Adaptive
			}
		}
	}
	for fault, plant := range map[string]func(c *core){
		"nothing":                  func(*core) {},
		"a limit that never falls": keep(map[*adaptive.Limit]adaptive.Limit{}, func(now, was float64) bool { return now < was }),
		"a limit that never grows": keep(map[*adaptive.Limit]adaptive.Limit{}, func(now, was float64) bool { return now > was }),
		"a lease above the limit": func(c *core) {
			for _, x := range c.order.Inside().AllThrottles() {
				c.order.Inside().SetAdaptive(x, nil)
			}
		},
		"each failure is a cut": func(c *core) {
			for _, m := range c.leases.byID {
				m.since = c.order.LeaseTime()
			}
		},
		"a cut is for ever": func(c *core) {
			for _, m := range c.leases.byID {
				m.since = 1
			}
		},
		"a limit that grows wakes nothing": func(c *core) {
			c.order.Inside().HideRoom()
		},
	} {
		t.Run(fault, func(t *testing.T) {
			s := adaptiveSim(1)
			s.relaxed = true
			s.run(300*time.Second, func() bool { plant(s.step.core); return s.broken > 0 })
			found := len(s.faults) > 0 || s.broken > 0
			if found != (fault != "nothing") {
				t.Errorf("found is %v: faults %q, %d times a message waited that could go, first %q", found, s.faults, s.broken, s.reds)
			}
		})
	}
}
