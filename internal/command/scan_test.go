package command

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

func TestParseIntHasOneFormForOneNumber(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "-1": -1, "10": 10, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
	} {
		if got, ok := ParseInt([]byte(text)); !ok || got != want {
			t.Errorf("%s: %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "-", "+1", "01", "-0", "00", " 1", "1 ", "1.0", "1e3", "0x1", "9223372036854775808", "-9223372036854775809",
		"99999999999999999999", "18446744073709551616", "١",
	} {
		if got, ok := ParseInt([]byte(text)); ok {
			t.Errorf("%q was taken for %d", text, got)
		}
	}
}

func TestNameCacheKeepsNothingLongAndConfusesNothing(t *testing.T) {
	var c nameCache
	for round := range 2 {
		for i := range 1000 {
			name := "tenant-" + strconv.Itoa(i)
			if got := c.get([]byte(name)); got != name {
				t.Fatalf("round %d: got %q, want %q", round, got, name)
			}
		}
	}
	long := strings.Repeat("x", nameCacheMax+1)
	if got := c.get([]byte(long)); got != long {
		t.Error("a long name came back changed")
	}
	for _, kept := range c.places {
		if len(kept) > nameCacheMax {
			t.Errorf("%d bytes are kept", len(kept))
		}
	}
	name := []byte("orders")
	c.get(name)
	if n := testkit.Allocations(100, func() { c.get(name) }); n != 0 {
		t.Errorf("%v allocations for a known name", n)
	}
}

func TestParseDoubleKnowsDecimalNumbersOnly(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "-0": 0, "1": 1, "-2.5": -2.5, "0.5": 0.5, ".5": 0.5, "1e3": 1000, "1E-1": 0.1, "150000": 150_000,
		"inf": math.Inf(1), "-Infinity": math.Inf(-1), "1e999": math.Inf(1),
	} {
		if got, ok := parseDouble([]byte(text)); !ok || got != want {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
	if got, ok := parseDouble([]byte("NaN")); !ok || !math.IsNaN(got) {
		t.Errorf("NaN: %v, %v", got, ok)
	}
	for _, text := range []string{"", "-", ".", "e3", "1e", "0x10", "0x1p4", "1_000", " 1", "1 ", "1,5", "ten", "١", strings.Repeat("1", 65)} {
		if got, ok := parseDouble([]byte(text)); ok {
			t.Errorf("%q was taken for %v", text, got)
		}
	}
}
