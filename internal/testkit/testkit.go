// Package testkit has what the tests of all packages share: how long they wait, and how.
//
// No test depends on the speed of the machine. What must happen is waited for with [Eventually]: a late
// answer is no failure, an answer that never comes is. The one bound of time is [Patience], which only a
// test that fails reaches.
package testkit

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patienceVariable names the environment variable that scales Patience. It is a factor: 3 makes tests
// wait three times as long before they fail.
const patienceVariable = "TEST_PATIENCE"

// patience is how long a test waits for a single event, on a machine that does a lot besides.
const patience = 2 * time.Minute

// Patience returns how long a test waits for something before it fails: two minutes, times TEST_PATIENCE.
func Patience() time.Duration {
	text, set := os.LookupEnv(patienceVariable)
	if !set {
		return patience
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil || !(factor > 0 && factor <= 1000) {
		panic(fmt.Sprintf("%s is %q: it must be a factor above 0 and up to 1000", patienceVariable, text))
	}
	return time.Duration(float64(patience) * factor)
}

// Slowed returns a time after which what a test has started takes others for gone, such as the one after which nodes elect
// another leader: d, and on a busy machine longer by as many processes as share a processor, up to most times d. It is four
// times as long where the load is not known.
func Slowed(d time.Duration, most float64) time.Duration {
	const unknown = 4
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return unknown * d
	}
	lately, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(lately, 64)
	if err != nil {
		return unknown * d
	}
	return time.Duration(float64(d) * min(max(load/float64(runtime.NumCPU()), 1), most))
}

// The time between two looks of Eventually: at first as short as a look is, then longer, so that waiting
// takes no processor from what is waited for.
const (
	firstLook = time.Millisecond
	lastLook  = 50 * time.Millisecond
)

// Eventually waits until holds returns true. It fails the test if Patience ends first; what then says
// which condition never held, as in "the queue is empty".
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	if limit := Patience(); !poll(limit, holds) {
		tb.Fatalf("it never held within %v that %s", limit, what)
	}
}

// EventuallyEqual waits until get returns want, by [reflect.DeepEqual]. It fails the test if Patience ends
// first; what names the value, as in "the depth of the queue".
func EventuallyEqual[T any](tb testing.TB, what string, want T, get func() T) {
	tb.Helper()
	var got T
	same := func() bool {
		got = get()
		return reflect.DeepEqual(got, want)
	}
	if limit := Patience(); !poll(limit, same) {
		tb.Fatalf("after %v, %s is %v, want %v", limit, what, got, want)
	}
}

// poll looks until holds returns true or the limit has passed. It reports whether holds did.
func poll(limit time.Duration, holds func() bool) bool {
	end := time.Now().Add(limit)
	for look := firstLook; !holds(); look = min(2*look, lastLook) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(look) //nolint:forbidigo // the one place that polls
	}
	return true
}

// Receive returns the next value of a channel. It fails the test if Patience ends first.
func Receive[T any](tb testing.TB, what string, from <-chan T) (v T) {
	tb.Helper()
	limit := time.NewTimer(Patience())
	defer limit.Stop()
	select {
	case v = <-from:
	case <-limit.C:
		tb.Fatalf("it never happened within %v that %s", Patience(), what)
	}
	return v
}

// Context returns a context that ends with the test, or when Patience does.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience())
	tb.Cleanup(cancel)
	return ctx
}

// Rounds is how often Allocations counts.
const Rounds = 5

// Allocations returns how many allocations a call of f makes, as testing.AllocsPerRun counts them, in the
// least of five rounds which share the runs. One round alone would also count what other goroutines of the
// process allocate meanwhile, such as the last ones of the test before, or what refills a pool that the
// collector emptied. It calls f once more in each round, before the count begins.
func Allocations(runs int, f func()) float64 {
	least := testing.AllocsPerRun(max(runs/Rounds, 1), f)
	for range Rounds - 1 {
		least = min(least, testing.AllocsPerRun(max(runs/Rounds, 1), f))
	}
	return least
}

// AtLength skips a test in a short run. It is for tests that take long and rarely find what the others do
// not: `make test` leaves them out, `make prove` runs them.
func AtLength(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("at length: make prove")
	}
}
