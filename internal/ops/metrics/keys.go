package metrics

import (
	"slices"
	"time"

	"github.com/faisca/fila/engine"
)

// keysTotal is how many fairness keys of all queues together have series.
const keysTotal = 1000

// chooseKeys gives the places of a queue to its top keys. Where all messages have the empty
// key, its figures are those of the queue.
func (c *Collector) chooseKeys(now time.Time, q *namedQueue, f *engine.QueueFigures) {
	top := &f.Top
	if f.Keys <= 1 && len(top[engine.ByDelivered]) == 1 && top[engine.ByDelivered][0] == "" {
		return
	}
	wanted := inTurns(c.cfg.Keys, top[engine.ByDelivered], top[engine.ByDepth], top[engine.ByAge], top[engine.ByBehind])
	q.keys.choose(now, wanted, c.cfg.Keys, &c.queues.keyRoom)
}

// keySample is a fairness key at one moment.
type keySample struct {
	key       string
	info      engine.KeyInfo
	delivered uint64 // as shown
}

// write writes the series of a key.
func (k *keySample) write(f *families, queue labels, now time.Time) {
	l := queue.with(labelKey, text(k.key))
	f.number(keyMessages, k.info.Depth, l)
	f.value(keyOldestReady, age(now, k.info.OldestAt), l)
	f.value(keyShare, k.info.Share, l)
	f.value(keyFairShare, k.info.FairShare, l)
	f.number(keyWeight, int64(k.info.Weight), l)
	f.flag(keyThrottled, slices.Contains([]engine.KeyState{engine.KeyHeld, engine.KeyThrottled, engine.KeyConcurrency}, k.info.State), l)
	f.count(keyDelivered, k.delivered, l)
}

// age returns the seconds since a time, 0 for none.
func age(now, since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(now.Sub(since), 0).Seconds()
}
