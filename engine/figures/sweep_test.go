package figures

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/faisca/fila/engine/internal/states"
)

func TestTheListOfTopKeysHasTheGreatest(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9)) //nolint:gosec // reproducible on purpose
	for _, n := range []int{0, 1, TopKeysMax, TopKeysMax + 1, 2*TopKeysMax - 1, 2 * TopKeysMax, 5000} {
		var l topList
		var want []topKey
		for i := range n {
			k := topKey{rng.Int64N(1000) - 1, fmt.Sprintf("k%04d", i)}
			l.offer(k.value, k.name)
			if k.value > 0 {
				want = append(want, k)
			}
			if len(l.list) >= 2*TopKeysMax {
				t.Fatalf("%d keys are in the list", len(l.list))
			}
		}
		slices.SortStableFunc(want, func(a, b topKey) int { return cmp.Compare(b.value, a.value) })
		want = want[:min(len(want), TopKeysMax)]
		for i, name := range l.names() {
			if l.list[i].value != want[i].value {
				t.Fatalf("%d keys: place %d has %s with %d, want %d", n, i, name, l.list[i].value, want[i].value)
			}
		}
		if len(l.list) != len(want) {
			t.Errorf("%d keys: the list has %d, want %d", n, len(l.list), len(want))
		}
	}
}

// A sweep begins when its results are too old, and again when no request advances it; what it finds of a queue is
// that queue's until the next one.
func TestASweepIsSharedUntilItIsTooOld(t *testing.T) {
	const age = 100
	var s Sweep
	queues := []*Queue{new(Queue), new(Queue)}
	for _, q := range queues {
		new(All).Enter(q, "")
	}
	sweep := func(now int64, depths ...int64) {
		t.Helper()
		if s.Recent(now, age, 3) || !s.Running || s.No != 1 {
			t.Fatalf("at %d no sweep begins: %+v", now, s)
		}
		for ; s.No < s.End; s.Next() {
			for i, n := range depths {
				s.Add(now, Sample{Name: fmt.Sprint(i), State: states.State(i), Depth: n * int64(s.No), Since: now - n, Behind: float64(n)})
			}
			s.Conclude(queues[s.No-1], now)
		}
		s.Finish(now)
	}
	sweep(1000, 5, 9, 7)
	if f := queues[1].Swept(); f == nil || f.States[2].Keys != 1 || f.OldestReady.UnixNano() != 991 || !slices.Equal(f.Top[ByDepth], []string{"1", "2", "0"}) || len(f.Top[ByDelivered]) != 0 {
		t.Fatalf("%+v", f)
	}
	if !s.Recent(1000+age, age, 3) {
		t.Error("recent results are too old")
	}
	if s.Recent(1001+age, age, 3) || s.Recent(1001+2*age, age, 3) || s.No != 1 {
		t.Errorf("%+v", s)
	}
	s.Next() // it has swept the first queue
	if s.Recent(1001+2*age, age, 3) || s.No != 2 {
		t.Errorf("a sweep under way begins again: %+v", s)
	}
	sweep(1002 + 3*age)
	if queues[0].Swept() != nil {
		t.Error("a queue without keys has figures of its keys")
	}
	var sum KeyFigures
	sweep(2000, 5)
	sum.Add(queues[0].Swept())
	sum.Add(queues[1].Swept())
	if sum.States[0].Keys != 2 || sum.OldestReady.UnixNano() != 1995 {
		t.Errorf("%+v", sum)
	}
}
