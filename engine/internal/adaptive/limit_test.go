package adaptive

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestAScriptedSequenceGivesExactLimits has the values of the two formulas, worked out by hand and
// rounded down to a millionth at each step.
func TestAScriptedSequenceGivesExactLimits(t *testing.T) {
	l := New(2, 10)
	for i, x := range []struct {
		inUse       int64 // a success
		began, now  int64 // a failure
		want        int64 // millionths
		slots       int64
		cuts        uint64
		least, most uint64 // new bounds
		because     string
	}{
		{inUse: 10, want: 10_000_000, slots: 10, because: "it is at its most"},
		{began: 1, now: 100, want: 7_000_000, slots: 7, cuts: 1, because: "a failure cuts to 0.7"},
		{began: 100, now: 101, want: 7_000_000, slots: 7, cuts: 1, because: "the lease began with the cut"},
		{began: 50, now: 102, want: 7_000_000, slots: 7, cuts: 1, because: "the lease began before the cut"},
		{inUse: 3, want: 7_000_000, slots: 7, cuts: 1, because: "less than half of 7 is in use"},
		{inUse: 4, want: 7_142_857, slots: 7, cuts: 1, because: "1/7"},
		{inUse: 4, want: 7_282_857, slots: 7, cuts: 1, because: "1/7.142857"},
		{inUse: 9, want: 7_420_165, slots: 7, cuts: 1, because: "more are in use than are allowed, after a cut"},
		{began: 101, now: 200, want: 5_194_115, slots: 5, cuts: 2, because: "0.7 of it"},
		{began: 201, now: 300, want: 3_635_880, slots: 3, cuts: 3, because: "0.7 of it"},
		{inUse: 1, want: 3_635_880, slots: 3, cuts: 3, because: "less than half of 3.635880"},
		{inUse: 2, want: 3_910_916, slots: 3, cuts: 3, because: "1/3.635880"},
		{began: 301, now: 400, want: 2_737_641, slots: 2, cuts: 4, because: "0.7 of it"},
		{began: 401, now: 500, want: 2_000_000, slots: 2, cuts: 5, because: "0.7 of it is below the least"},
		{began: 501, now: 600, want: 2_000_000, slots: 2, cuts: 6, because: "it is at its least, and counts"},
		{least: 1, most: 100, want: 2_000_000, slots: 2, cuts: 6, because: "new bounds leave it"},
		{inUse: 2, want: 4_500_000, slots: 4, cuts: 6, because: "100/20/2"},
		{least: 1, most: 4, want: 4_000_000, slots: 4, cuts: 6, because: "it is above the new most"},
		{began: 600, now: 700, want: 4_000_000, slots: 4, cuts: 6, because: "new bounds keep the time of the last cut"},
		{least: 6, most: 8, want: 6_000_000, slots: 6, cuts: 6, because: "it is below the new least"},
	} {
		switch {
		case x.most > 0:
			l.Set(x.least, x.most)
		case x.inUse > 0:
			l.Success(x.inUse)
		default:
			before := l.Cuts()
			if cut := l.Failure(x.began, x.now); cut != (x.cuts > before) {
				t.Errorf("step %d (%s): cut is %v", i, x.because, cut)
			}
		}
		if l.value != x.want || l.Slots() != x.slots || l.Cuts() != x.cuts || l.Value() != float64(x.want)/1e6 {
			t.Fatalf("step %d (%s): limit %d, %d slots, %d cuts; want %d, %d, %d", i, x.because, l.value, l.Slots(), l.Cuts(), x.want, x.slots, x.cuts)
		}
	}
}

// TestAnOutageTakesFiftyToOneInElevenRounds of leases, and rounds of success bring it back.
func TestAnOutageTakesFiftyToOneInElevenRounds(t *testing.T) {
	l := New(1, 50)
	failed := int64(0)
	for now := int64(1); l.value > unit; now += 2 {
		for range l.Slots() {
			l.Failure(now, now+1)
		}
		failed++
	}
	if failed != 11 {
		t.Errorf("%d rounds of failures, want 11", failed)
	}
	for _, most := range []uint64{1, 2, 7, 20, 21, 50, 1000, 1_000_000, 1_000_000_000} {
		l := &Limit{value: unit}
		l.Set(1, most)
		n := 0
		for ; l.value < l.most; n++ {
			slots := l.Slots()
			if slots > 1000 { // so many successes are one step: the limit hardly changes meanwhile
				l.value = min(l.value+l.most/rounds, l.most)
				continue
			}
			for range slots {
				l.Success(slots)
			}
		}
		t.Logf("%d rounds of success from 1 to %d", n, most)
		if n > 24 {
			t.Errorf("%d rounds of success from 1 to %d, want some 20", n, most)
		}
	}
}

// TestALimitIsThatOfExactFractions within a millionth a step, for random bounds up to the largest,
// and stays between them.
func TestALimitIsThatOfExactFractions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		most := 1 + r.Uint64N([]uint64{3, 50, 10_000, 1_000_000_000}[r.IntN(4)])
		least := 1 + r.Uint64N(most)
		l := New(least, most)
		now := int64(0)
		for range 300 {
			before := big.NewRat(l.value, unit)
			want := new(big.Rat)
			if r.IntN(3) == 0 {
				now += 2
				l.Failure(now, now+1)
				want.Mul(before, big.NewRat(7, 10))
			} else {
				l.Success(l.Slots())
				step := big.NewRat(int64(most), 20)
				if step.Cmp(big.NewRat(1, 1)) < 0 {
					step.SetInt64(1)
				}
				want.Add(before, step.Quo(step, before))
			}
			if low := new(big.Rat).SetUint64(least); want.Cmp(low) < 0 {
				want = low
			}
			if high := new(big.Rat).SetUint64(most); want.Cmp(high) > 0 {
				want = high
			}
			off := new(big.Rat).Sub(want, big.NewRat(l.value, unit))
			if off.Sign() < 0 || off.Cmp(big.NewRat(2, unit)) > 0 {
				t.Fatalf("from %d to %d: %s, want %s", least, most, big.NewRat(l.value, unit).FloatString(7), want.FloatString(9))
			}
			if l.value < l.least || l.value > l.most || l.Slots() < 1 {
				t.Fatalf("from %d to %d: %d is out of bounds", least, most, l.value)
			}
		}
	}
}

// 10, cut to 7, grown by a seventh, cut again: the limit is 5 by the rules, and allows 5.
func TestAWholeLimitIsWhole(t *testing.T) {
	l := New(1, 10)
	l.Failure(1, 1)
	l.Success(7)
	l.Failure(2, 2)
	if l.Slots() != 5 || l.Value() != 5 {
		t.Errorf("the limit is %v and allows %d", l.Value(), l.Slots())
	}
	// Whatever has happened before, no limit is short of a whole number by what rounding has taken.
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		most := 1 + rng.Uint64N(1000)
		l, now := New(1, most), int64(1)
		for range 1000 {
			if now++; rng.IntN(4) == 0 {
				l.Failure(now, now)
			} else {
				l.Success(l.Slots())
			}
			if short := math.Ceil(l.Value()) - l.Value(); short > 0 && short < 0.000019 {
				t.Fatalf("the limit is %v", l.Value())
			}
			if l.Slots() < 1 || l.Slots() > int64(most) {
				t.Fatalf("%d slots of %d", l.Slots(), most)
			}
		}
	}
}
