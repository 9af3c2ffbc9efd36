package scripting

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// attack is a script of the corpus. Its first line says how it has to end:
//
//	limit   the time, step or memory limit ended it
//	memory  the memory limit did
//	error   it failed in another way
//	load    it was not accepted
//	ok      nothing bad came of it
//	any     one of these
type attack struct {
	name, expect, source string
}

func attacks(t testing.TB) []attack {
	t.Helper()
	files, err := filepath.Glob("testdata/attacks/*.lua")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d attacks, %v", len(files), err)
	}
	all := make([]attack, 0, len(files))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(b), "\n")
		expect, ok := strings.CutPrefix(first, "-- expect: ")
		if !ok {
			t.Fatalf("%s does not say how it has to end", f)
		}
		all = append(all, attack{strings.TrimSuffix(filepath.Base(f), ".lua"), expect, string(b)})
	}
	return all
}

// outcome is how an attack ended, and what it took.
type outcome struct {
	err       error
	refused   bool // at load
	key       string
	duration  time.Duration // of the processor, where that can be told from what the machine did beside
	allocated int64         // bytes, numbers that arithmetic leaves behind not included
}

// mount runs an attack. What is allocated is read off the heap's own counter,
// not off the count that is being tested. Numbers are taken out of it: each
// instruction may leave two of 8 bytes behind, which are garbage at once.
func mount(s *Sandbox, a attack) (o outcome) {
	var before, loaded, after runtime.MemStats
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.ReadMemStats(&before)
	start := threadTime()
	h, err := accept(s, hook.OnEnqueue, a.source)
	took := threadTime() - start
	runtime.ReadMemStats(&loaded)
	if err != nil {
		return outcome{err: err, refused: true, duration: took, allocated: allocated(&before, &loaded)}
	}
	start = threadTime()
	trial := h.Try(benchMessage(), benchView(), hook.Bounds{})
	took = threadTime() - start
	runtime.ReadMemStats(&after)
	return outcome{
		err: trial.Err, duration: min(took, trial.Duration), key: trial.Enqueue.Key,
		allocated: allocated(&loaded, &after) - 16*trial.Instructions,
	}
}

func allocated(before, after *runtime.MemStats) int64 {
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func (o *outcome) is(expect string) bool {
	var e *Error
	limit := errors.As(o.err, &e) && e.Limit
	switch expect {
	case "limit":
		return limit
	case "memory":
		return limit && strings.Contains(e.Text, "memory")
	case "error":
		return o.err != nil && !limit && !o.refused
	case "load":
		return o.refused
	case "ok":
		return o.err == nil
	default:
		return expect == "any"
	}
}

func TestAttacksEndWithinTheirLimits(t *testing.T) {
	s, patient := sandbox(t), patientSandbox(t, time.Minute)
	tenant := load(t, s, hook.OnEnqueue, tenantScript(t))
	memory := int64(s.cfg.Memory) + 1<<20
	for _, a := range attacks(t) {
		t.Run(a.name, func(t *testing.T) {
			goroutines := runtime.NumGoroutine()
			fastest := time.Hour
			for range 3 {
				o := mount(s, a)
				if !o.is(a.expect) && o.is("limit") { // the time was over too soon, on a slow or busy machine
					o = mount(patient, a)
				}
				if !o.is(a.expect) {
					t.Fatalf("want %s, got %v", a.expect, o.err)
				}
				if o.err != nil && !o.refused && o.key != hook.DefaultKey {
					t.Errorf("an error, and yet the key is %q", o.key)
				}
				if o.err != nil {
					fit(t, o.err)
				}
				most := memory
				if o.refused { // its syntax tree has a bound as well: the source's
					most += 2000 * int64(len(a.source))
				}
				if o.allocated > most {
					t.Errorf("%d bytes, the limit is %d", o.allocated, s.cfg.Memory)
				}
				fastest = min(fastest, o.duration)
				if testing.Short() && fastest <= 2*s.cfg.Timeout {
					break
				}
			}
			// Go has other work as well, so the best of three counts.
			if fastest > 2*s.cfg.Timeout && a.expect != "load" {
				t.Errorf("took %v, the limit is %v", fastest, s.cfg.Timeout)
			}
			if n := runtime.NumGoroutine(); n > goroutines {
				t.Errorf("%d goroutines, %d before", n, goroutines)
			}
			if d, err := tenant.OnEnqueue(time.Now(), benchMessage(), benchView(), hook.Bounds{}); err != nil || d.Key != "acme" || d.Weight != 3 {
				t.Errorf("afterwards the next script gives %+v, %v", d, err)
			}
		})
	}
}

// With all the time in the world, memory alone has to end these.
func TestTheMemoryLimitNeedsNoClock(t *testing.T) {
	s := patientSandbox(t, 10*time.Second)
	for _, a := range attacks(t) {
		if a.expect != "memory" {
			continue
		}
		o := mount(s, a)
		if !o.is("memory") {
			t.Errorf("%s: %v", a.name, o.err)
		}
		if o.allocated > int64(s.cfg.Memory)+1<<20 {
			t.Errorf("%s: %d bytes, the limit is %d", a.name, o.allocated, s.cfg.Memory)
		}
	}
}

// fit checks that an error may be sent and logged as it is.
func fit(t testing.TB, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > errorBytesMax || text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		t.Errorf("not fit to be shown: %q", text)
	}
}
