package engine

import (
	"math/rand/v2"
	"time"
)

// conditions vary between seeds.
type conditions struct {
	crash, powerLoss, diskFails float64 // chances per step
	lazy                        float64 // chance that a commit or read is delayed
	lost                        float64 // chance that a connection breaks while a lease waits, or at its reply
	sync                        SyncMode
	clients, keys, steps        int
	window                      int
	reclaimMax                  int // of detached keys, leases and messages in a turn
	units                       int // budget of a turn
	leaseLag                    time.Duration
	backoff                     time.Duration
	dedupWindow                 time.Duration
	attempts                    uint32
	bodyMin                     int // bytes of the payloads that messages share
}

func newConditions(r *rand.Rand) conditions {
	w := conditions{
		lost: 0.1, clients: 1 + r.IntN(6), keys: 1 + r.IntN(5), steps: 150 + r.IntN(250), window: 2 + r.IntN(12),
		leaseLag: time.Duration(r.IntN(3)) * 5 * time.Millisecond, backoff: time.Duration(r.IntN(3)) * 200 * time.Millisecond,
		attempts: uint32(r.IntN(5)), dedupWindow: time.Duration(100+r.IntN(3000)) * time.Millisecond,
	}
	if r.IntN(3) > 0 {
		w.crash = 0.02
	}
	if r.IntN(3) == 0 {
		w.powerLoss = 0.02
	}
	if r.IntN(3) == 0 {
		w.diskFails = 0.01
	}
	if r.IntN(2) == 0 {
		w.lazy = 0.7
	}
	if w.powerLoss > 0 { // the sync mode matters only with power loss
		w.sync = []SyncMode{SyncAlways, SyncAlways, SyncInterval, SyncNever}[r.IntN(4)]
	}
	w.reclaimMax = []int{1, 4, reclaimMax}[r.IntN(3)]
	w.units = []int{1, 4, 64, turnUnits}[r.IntN(4)]
	w.bodyMin = []int{1, 1, bodyMin}[w.steps/3%3]
	return w
}
