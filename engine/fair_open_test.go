package engine

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A lease of more messages than the windows in memory hold must not go on with
// the keys that have some left when another one has run out of memory, not of
// messages: shares drift towards equal, whatever the weights.
func TestALeaseOfMoreThanIsInMemoryKeepsShares(t *testing.T) {
	m := newMarket(t, nil)
	rng := rand.New(rand.NewPCG(1, 1))
	light, heavy := m.key("light", 1), m.key("heavy", 3)
	m.put(light, 3000, rng, 1)
	m.put(heavy, 8000, rng, 1)
	for len(m.order) < 10_000 {
		m.take(min(1000, 10_000-len(m.order)), nil)
	}
	if light.got < 2450 || light.got > 2550 {
		t.Errorf("of 10000 deliveries the light key got %d, want 2500", light.got)
	}
}

// The timer for a token must not come later than the bucket lets it pass: arm
// does not know of tokenSlack, room does.
func TestATokenIsNotSeenBeforeItsTimer(t *testing.T) {
	x := rateTrial{rate: 3.3, burst: 4, over: time.Minute}
	x.run(t)
}
