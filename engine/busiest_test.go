package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/engine/figures"
)

// busiestOf returns the busiest keys of a queue, and the sum of the others.
func (w *world) busiestOf(queue string) (top []BusyKey, rest BusyKey) {
	w.t.Helper()
	w.must(func(tx *Tx) (err error) {
		top, rest, err = tx.BusiestKeys(queue)
		return err
	})
	return top, rest
}

// Keys come and go, at random: those with messages, without, returned and purged. The list has
// the ten busiest at any time, and with the rest all deliveries.
func TestTheBusiestKeysAreKnownAtAnyTime(t *testing.T) {
	purges, returned := 0, 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // reproducible on purpose
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{NoDLQ: true})
		delivered := map[string]uint64{}
		keys := 5 + rng.IntN(60)
		for range 600 {
			switch rng.IntN(12) {
			case 0:
				if rng.IntN(20) == 0 {
					w.tick(purgeOf("q"))
					for w.core.tasks.unfinished {
						w.tick()
					}
					purges++
				}
			case 1, 2, 3, 4:
				w.enqueue("q", fmt.Sprintf("k%d", rng.IntN(1+rng.IntN(keys))), "m")
			default:
				for _, d := range w.lease("q", 1+rng.IntN(2)) {
					if w.core.queues.byName["q"].keys.get(d.Key).stats.Delivered > 1 {
						returned++
					}
					delivered[d.Key]++
					if rng.IntN(4) > 0 {
						w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
					}
				}
			}
		}
		top, rest := w.busiestOf("q")
		var want []uint64
		all := uint64(0)
		for _, n := range delivered {
			want = append(want, n)
			all += n
		}
		slices.SortFunc(want, func(a, b uint64) int { return cmp.Compare(b, a) })
		sum := rest.Delivered
		for i, k := range top {
			sum += k.Delivered
			if k.Delivered != delivered[k.Key] || k.Delivered != want[i] {
				t.Errorf("seed %d: place %d has %+v, it has %d deliveries, and %d belong there", seed, i, k, delivered[k.Key], want[i])
			}
		}
		if sum != all || len(top) != min(len(delivered), figures.BusiestMax) {
			t.Errorf("seed %d: %d keys and the rest with %d deliveries, there are %d keys with %d", seed, len(top), sum, len(delivered), all)
		}
	}
	if purges == 0 || returned == 0 {
		t.Errorf("%d purges, %d deliveries of keys that were known", purges, returned)
	}
}

// After a purge of more keys than are known by name, the list has those that are.
func TestAPurgeOfManyKeysLeavesTheBusiestThatAreKnownByName(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{NoDLQ: true})
	for range 3 {
		w.enqueue("q", "known", "m")
		for _, d := range w.lease("q", 1) {
			w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
		}
	}
	w.fillKeys("q", 2*figures.IdleMax)
	w.lease("q", figures.IdleMax)
	w.tick(purgeOf("q"))
	for w.core.tasks.unfinished {
		w.tick()
	}
	top, rest := w.busiestOf("q")
	if len(top) != 1 || top[0].Key != "known" || top[0].Delivered != 3 || rest.Delivered != figures.IdleMax {
		t.Errorf("%+v and the rest with %d deliveries", top, rest.Delivered)
	}
}

func TestTheSumOfTheOtherKeysHasWhatThrottlesDid(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	one := uint64(1)
	w.must(func(tx *Tx) error { return tx.SetThrottle("t", ThrottleOptions{Concurrency: &one}) })
	w.fillKeys("q", 3*figures.BusiestMax, "t")
	for range 2 * figures.BusiestMax {
		for _, d := range w.lease("q", 1) {
			w.lease("q", 1) // is refused
			w.Advance(1e9)
			w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
		}
	}
	top, rest := w.busiestOf("q")
	admitted, refused := rest.Admitted, rest.Refused
	waited := rest.Waited
	for _, k := range top {
		admitted, refused, waited = admitted+k.Admitted, refused+k.Refused, waited+k.Waited
		if !strings.HasPrefix(k.Key, "k") || k.Delivered != 1 || k.Admitted != 1 {
			t.Errorf("a key: %+v", k)
		}
	}
	th, _ := w.core.order.Inside().Throttle("t")
	if admitted != 2*figures.BusiestMax || admitted != th.Admitted || refused != th.Refused || refused == 0 || int64(waited) != th.Waited || waited == 0 {
		t.Errorf("%d admitted, %d refused, waited %v; the throttle has %d, %d, %d", admitted, refused, waited, th.Admitted, th.Refused, th.Waited)
	}
}
