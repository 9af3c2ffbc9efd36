package decay_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/decay"
)

func windows(tb testing.TB, lengths ...time.Duration) *decay.Windows {
	tb.Helper()
	if lengths == nil {
		lengths = []time.Duration{time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour}
	}
	w, err := decay.NewWindows(lengths)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func TestWindowsAreNamedByTheirLengths(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "1s", 90 * time.Second: "90s", time.Minute: "1m", 90 * time.Minute: "90m", time.Hour: "1h",
		24 * time.Hour: "24h", decay.LengthMax: "8760h", 1500 * time.Millisecond: "1500ms",
	} {
		w := windows(t, d)
		if i, ok := w.Index(want); !ok || i != 0 || w.Name(0) != want || w.Len() != 1 || w.Length(0) != d {
			t.Errorf("a window of %v is named %s", d, w.Name(0))
		}
	}
	w := windows(t)
	if i, ok := w.Index("all"); !ok || i != 4 || w.Name(i) != "all" {
		t.Errorf("all is window %d, %v", i, ok)
	}
	if _, ok := w.Index("2m"); ok {
		t.Error("there is a window 2m")
	}
}

func TestWindowsOutsideTheirBoundsAreRefused(t *testing.T) {
	s := time.Second
	for _, bad := range [][]time.Duration{
		nil, {s - time.Millisecond}, {decay.LengthMax + time.Millisecond}, {s, s}, {2 * s, s}, {s, 2 * s, 3 * s, 4 * s, 5 * s}, {s + 1},
	} {
		if _, err := decay.NewWindows(bad); err == nil {
			t.Errorf("%v are accepted", bad)
		}
	}
	windows(t, s, 2*s, 3*s, decay.LengthMax)
}

// exact is the sum as it is defined, with compensated summation.
func exact(times []int64, values []float64, length time.Duration, now int64) float64 {
	var sum, lost float64
	for i, at := range times {
		x := values[i]*math.Exp(-float64(now-at)/float64(length)) - lost
		next := sum + x
		lost = (next - sum) - x
		sum = next
	}
	return sum
}

// near reports whether two sums are equal but for an error of 1e-9. What is as small as the numbers
// that a float64 holds with fewer digits is equal to 0.
func near(got, want float64) bool {
	return math.Abs(got-want) <= 1e-9*math.Abs(want) || math.Abs(want) < 1e-290 && math.Abs(got) < 1e-280
}

func TestSumsEqualTheExactOnes(t *testing.T) {
	const additions = 10_000
	start := time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC).UnixNano()
	for i, gap := range []time.Duration{
		time.Microsecond, time.Millisecond, 50 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour, 8 * time.Hour,
		7 * 24 * time.Hour, 0,
	} {
		name := gap.String()
		if gap == 0 {
			name = "microseconds to years"
		}
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			w := windows(t)
			var sum decay.Sum
			var times []int64
			var values []float64
			now, whole := start, 0.0
			for n := range additions {
				step := time.Duration(rng.ExpFloat64() * float64(gap))
				if gap == 0 && n%50 == 0 {
					step = time.Duration(math.Exp(rng.Float64()*math.Log(3e16)) / 500) // at most some days, years in total
				} else if gap == 0 {
					step = time.Duration(rng.IntN(int(time.Millisecond)))
				}
				now += int64(step)
				at := now
				if rng.IntN(10) == 0 { // late, by up to some windows
					at -= rng.Int64N(int64(3 * time.Hour))
				}
				v := float64(rng.IntN(1_000_000))
				m := w.At(at)
				sum.Add(w, &m, v)
				times, values, whole = append(times, at), append(values, v), whole+v
				if n%997 != 0 && n != additions-1 {
					continue
				}
				if n%2 == 0 { // as over a restart
					st := sum.State(w)
					sum = decay.Sum{}
					sum.Restore(w, &st)
				}
				newest := slices.Max(times)
				for _, later := range []time.Duration{0, time.Second, 7 * time.Minute, 3 * time.Hour, 100 * 24 * time.Hour} {
					read := newest + int64(later)
					for i := range w.Len() {
						if got, want := sum.Value(w, i, read), exact(times, values, w.Length(i), read); !near(got, want) {
							t.Fatalf("after %d additions, %v later, %s: %v, want %v", n+1, later, w.Name(i), got, want)
						}
					}
				}
				if got := sum.Value(w, w.Len(), now); got != whole {
					t.Fatalf("all is %v, want %v", got, whole)
				}
			}
		})
	}
}

func TestAClockThatIsSetBackMakesNothingGrow(t *testing.T) {
	w := windows(t)
	now := time.Now().UnixNano()
	var sum decay.Sum
	m := w.At(now)
	sum.Add(w, &m, 10)
	for i := range w.Len() {
		if got := sum.Value(w, i, now-int64(100*time.Hour)); !near(got, 10) {
			t.Errorf("%s: %v a hundred hours earlier", w.Name(i), got)
		}
	}
}

func TestEqualAdditionsGiveEqualBits(t *testing.T) {
	w := windows(t)
	start := time.Now().UnixNano()
	var once, restarted decay.Sum
	for i := range 5000 {
		m := w.At(start + int64(i)*int64(time.Minute))
		once.Add(w, &m, float64(i))
		if i%100 == 0 { // the clock of the restart does not matter
			st := restarted.State(w)
			restarted = decay.Sum{}
			restarted.Restore(w, &st)
		}
		restarted.Add(w, &m, float64(i))
	}
	if once.State(w) != restarted.State(w) {
		t.Errorf("%+v and %+v", once.State(w), restarted.State(w))
	}
}

func TestARestoredSumKeepsTheWindowsThatAreStillThere(t *testing.T) {
	before := windows(t, time.Minute, time.Hour)
	now := time.Now().UnixNano()
	var sum decay.Sum
	m := before.At(now)
	sum.Add(before, &m, 8)
	st := sum.State(before)
	after := windows(t, time.Second, time.Hour, 2*time.Hour)
	var restored decay.Sum
	restored.Restore(after, &st)
	for i, want := range []float64{0, 8, 0, 8} {
		if got := restored.Value(after, i, now); !near(got, want) {
			t.Errorf("%s: %v, want %v", after.Name(i), got, want)
		}
	}
}

// A reader sees a sum before or after an addition, never between two landmarks, where it would be
// wrong by a factor of e^64. The race detector watches as well.
func TestReadersSeeWholeSums(t *testing.T) {
	w := windows(t, time.Second, 2*time.Second)
	var sum decay.Sum
	start := time.Now().UnixNano()
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for i := range 2 {
					if v := sum.Value(w, i, 0); v < 0 || v > 1.0001 {
						t.Errorf("%s: %v", w.Name(i), v)
						return
					}
				}
			}
		})
	}
	for i := range 20_000 { // each addition finds the earlier ones faded to nothing
		m := w.At(start + int64(i)*int64(100*time.Second))
		sum.Add(w, &m, 1)
	}
	close(done)
	wg.Wait()
}

func BenchmarkAdd(b *testing.B) {
	w := windows(b)
	sums := make([]decay.Sum, 1000)
	now := time.Now().UnixNano()
	m := w.At(now)
	for i := 0; b.Loop(); i++ {
		sums[i%1000].Add(w, &m, 1)
	}
}

func BenchmarkAt(b *testing.B) {
	w := windows(b)
	now := time.Now().UnixNano()
	for b.Loop() {
		now += 1000
		_ = w.At(now)
	}
}

func ExampleSum() {
	w, _ := decay.NewWindows([]time.Duration{time.Minute})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	var sum decay.Sum
	m := w.At(now)
	sum.Add(w, &m, 100)
	fmt.Printf("%.1f\n", sum.Value(w, 0, now+int64(41589*time.Millisecond)))
	// Output: 50.0
}
