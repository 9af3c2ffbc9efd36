package metrics

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/faisca/fila/internal/histogram"
)

func TestANameStaysForTenMinutesAndThenLosesItsPlaceToAnother(t *testing.T) {
	var p places
	now, room := time.Unix(1e9, 0), 100
	choose := func(wanted ...string) {
		t.Helper()
		p.choose(now, wanted, 2, &room)
		if len(p.by) > 2 || room != 100-len(p.by) {
			t.Fatalf("%d names, room for %d", len(p.by), room)
		}
	}
	has := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if p.by[name] == nil {
				t.Errorf("%s has no place, of %d", name, len(p.by))
			}
		}
	}
	choose("a", "b", "c")
	has("a", "b")
	now = now.Add(stay - 1)
	choose("c", "d")
	has("a", "b") // they have not stayed yet
	now = now.Add(1)
	choose("c", "a")
	has("a", "c") // a is wanted, b is not
	now = now.Add(stay)
	choose()
	has("a", "c") // no other wants their places
	choose("d", "e", "f")
	has("d", "e")
}

func TestAllQueuesShareThePlacesForKeys(t *testing.T) {
	var first, second places
	room := 3
	first.choose(time.Unix(1, 0), []string{"a", "b"}, 2, &room)
	second.choose(time.Unix(1, 0), []string{"a", "b"}, 2, &room)
	if len(first.by) != 2 || len(second.by) != 1 || room != 0 {
		t.Errorf("%d and %d places, room for %d", len(first.by), len(second.by), room)
	}
	second.drop("a", &room)
	first.choose(time.Unix(1, 0), []string{"c"}, 2, &room)
	if first.by["c"] != nil || room != 1 {
		t.Error("a queue has more places than it may")
	}
}

func TestListsTakeTurns(t *testing.T) {
	got := inTurns(5, []string{"a", "b", "c"}, []string{"a", "x"}, nil, []string{"y", "z", "a"})
	if want := []string{"a", "y", "b", "x", "z"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := inTurns(0, []string{"a"}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestACounterGoesOnWhenItsSourceBeginsAgain(t *testing.T) {
	var c counter
	for i, step := range []struct{ see, want uint64 }{{5, 5}, {5, 5}, {7, 7}, {2, 9}, {3, 10}, {0, 10}, {1, 11}} {
		if got := c.see(step.see); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
}

// decode returns the buckets of a native histogram.
func decode(h *dto.Histogram) map[int]uint64 {
	buckets := map[int]uint64{}
	at, n, next := int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		at += span.GetOffset()
		for range span.GetLength() {
			n += h.GetPositiveDelta()[next]
			next++
			if n > 0 {
				buckets[int(at)] = uint64(n)
			}
			at++
		}
	}
	return buckets
}

func TestANativeHistogramHasTheBucketsOfTheOriginal(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible on purpose
	for n := range 300 {
		var h histogram.Histogram
		for range n % 50 {
			h.Observe(time.Duration(rng.Int64() >> rng.IntN(62)))
		}
		d := &dto.Histogram{}
		addNative(d, &h)
		want := maps.Collect(h.Buckets())
		if got := decode(d); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if d.GetZeroCount() != h.Zero() || d.GetSchema() != histogram.Schema || len(d.GetPositiveSpan()) == 0 {
			t.Fatalf("zero count %d, want %d; schema %d; %d spans", d.GetZeroCount(), h.Zero(), d.GetSchema(), len(d.GetPositiveSpan()))
		}
	}
}
