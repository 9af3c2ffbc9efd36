package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a test that may fail without failing the one that looks.
type recorder struct {
	testing.TB

	failed string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, _ ...any) {
	r.failed = format
	panic(r)
}

// fails reports whether a function failed its test.
func fails(f func(tb testing.TB)) (failed bool) {
	r := &recorder{}
	defer func() { failed = recover() == r }()
	f(r)
	return false
}

func TestEventuallyWaitsForWhatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Eventually(t, "a minute has passed", func() bool { return time.Since(began) >= time.Minute })
		if late := time.Since(began) - time.Minute; late > lastLook {
			t.Errorf("seen %v late", late)
		}
	})
}

func TestWhatNeverHappensFails(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		began := time.Now()
		for name, wait := range map[string]func(testing.TB){
			"Eventually":      func(tb testing.TB) { tb.Helper(); Eventually(tb, "no is yes", func() bool { return false }) },
			"EventuallyEqual": func(tb testing.TB) { tb.Helper(); EventuallyEqual(tb, "one", 2, func() int { return 1 }) },
			"Receive":         func(tb testing.TB) { tb.Helper(); Receive(tb, "a value arrives", make(chan int)) },
		} {
			if !fails(wait) {
				t.Errorf("%s did not fail", name)
			}
		}
		if took := time.Since(began); took < 3*Patience() {
			t.Errorf("gave up after %v", took)
		}
	})
}

func TestOneVariableScalesPatience(t *testing.T) {
	t.Setenv(patienceVariable, "2.5")
	if got := Patience(); got != 5*time.Minute {
		t.Errorf("got %v", got)
	}
	for _, wrong := range []string{"", "0", "-1", "long", "NaN"} {
		t.Setenv(patienceVariable, wrong)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is taken", wrong)
				}
			}()
			Patience()
		}()
	}
}

// Another goroutine that allocates for a while, as one that an earlier test left, is not counted.
func TestAllocationsAreThoseOfTheFunction(t *testing.T) {
	calls := 0
	kept := make([][]byte, 0, 1000)
	if n := Allocations(50, func() {
		if calls++; calls <= 30 { // three of the five rounds
			for range 7 {
				kept = append(kept, make([]byte, 1000))
			}
		}
		kept = append(kept, make([]byte, 1000))
	}); n != 1 || calls != 55 {
		t.Errorf("%v allocations in %d calls, want 1 in 55", n, calls)
	}
}
