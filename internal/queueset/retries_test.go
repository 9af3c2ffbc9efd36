package queueset

import (
	"math"
	"testing"
)

func TestRetriesTakeThePlaceOfWhatIsGiven(t *testing.T) {
	var none *Retries
	if none.With(Retries{}) != nil {
		t.Error("nothing is given, and there are retries")
	}
	first := none.With(Retries{MaxAttempts: Some(0), Backoff: Some(5)})
	second := first.With(Retries{Backoff: Some(0), MaxBackoff: Some(9)})
	if *first != (Retries{MaxAttempts: Some(0), Backoff: Some(5)}) || *second != (Retries{Some(0), Some(0), Some(9)}) {
		t.Errorf("%v, then %v", *first, *second)
	}
	for _, x := range []struct{ of, others, want Retries }{
		{Retries{MaxBackoff: Some(9)}, Retries{Backoff: Some(20)}, Retries{Backoff: Some(20), MaxBackoff: Some(20)}},
		{Retries{MaxBackoff: Some(9)}, Retries{Backoff: Some(8)}, Retries{Backoff: Some(8), MaxBackoff: Some(9)}},
		{Retries{Backoff: Some(20)}, Retries{MaxBackoff: Some(9)}, Retries{Backoff: Some(9), MaxBackoff: Some(9)}},
		{Retries{Backoff: Some(20)}, Retries{Backoff: Some(3)}, Retries{Backoff: Some(3)}},
		{Retries{MaxBackoff: Some(9)}, Retries{MaxBackoff: Some(0)}, Retries{MaxBackoff: Some(0)}},
	} {
		if got := x.of.With(x.others); *got != x.want || got.Check() != nil {
			t.Errorf("%v with %v: %v", x.of, x.others, *got)
		}
	}
	if n, ok := second.MaxAttempts.Value(); n != 0 || !ok || second.MaxAttempts.Or(7) != 0 || Optional(0).Or(7) != 7 {
		t.Errorf("0 that is given: %d, %v", n, ok)
	}
	if _, ok := Optional(0).Value(); ok {
		t.Error("what is not given has a value")
	}
}

func TestRetriesAreWithinTheBoundsOfAQueue(t *testing.T) {
	for _, x := range []struct {
		r    Retries
		want string
	}{
		{Retries{}, ""},
		{Retries{MaxAttempts: Some(math.MaxUint32), Backoff: Some(MillisMax), MaxBackoff: Some(MillisMax)}, ""},
		{Retries{MaxAttempts: Some(math.MaxUint32 + 1)}, "MAXATTEMPTS must be from 0 to 4294967295 n, not 4294967296"},
		{Retries{Backoff: Some(MillisMax + 1)}, "BACKOFF must be from 0 to 3153600000000 ms, not 3153600000001"},
		{Retries{MaxBackoff: Some(MillisMax + 1)}, "MAXBACKOFF must be from 0 to 3153600000000 ms, not 3153600000001"},
		{Retries{Backoff: Some(2), MaxBackoff: Some(1)}, "MAXBACKOFF 1 is below BACKOFF 2"},
		{Retries{MaxBackoff: Some(0)}, ""},
	} {
		got := ""
		if err := x.r.Check(); err != nil {
			got = err.Error()
		}
		if got != x.want {
			t.Errorf("%v: %q, want %q", x.r, got, x.want)
		}
	}
}
