package scripting

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// Loads that follow each other are paid for with time in which nothing is loaded, whatever
// becomes of them. A load that is alone waits for nothing, nor does a restored script.
func TestLoadsTakeABoundedShareOfTheProcessor(t *testing.T) {
	source := "local f " + strings.Repeat("f(a, b, c) ", 2000) + " function on_enqueue(msg) end"
	sources := map[string]string{"accepted": "local function f() end" + source, "refused": source, "malformed": source + "end"}
	if testing.Short() {
		delete(sources, "refused")
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := sandbox(t)
				var work effort
				_, _ = compile(s.lib, hook.OnEnqueue, source, s.cfg.Source, &work)
				each := loadShare * work.duration()
				if each < loadCredit/20 || each > loadCredit/4 {
					t.Fatalf("a load is paid for with %v, which tells nothing", each)
				}
				const loads = 40
				start := time.Now()
				for range loads {
					_, _ = accept(s, hook.OnEnqueue, source)
				}
				if took := time.Since(start); took > 0 {
					t.Errorf("%d restored scripts wait for %v", loads, took)
				}
				var all sync.WaitGroup
				for range loads {
					all.Go(func() { _, _ = s.Load(hook.Caller{}, hook.OnEnqueue, source) })
				}
				all.Wait()
				if took, want := time.Since(start), (loads-1)*each-loadCredit; took != want {
					t.Errorf("%d loads take %v, want %v", loads, took, want)
				}
				time.Sleep(time.Hour)
				start = time.Now()
				_, _ = s.Load(hook.Caller{}, hook.OnEnqueue, source)
				if took := time.Since(start); took > 0 {
					t.Errorf("a load that is alone waits for %v", took)
				}
			})
		})
	}
}

// A script that would take too long to compile is refused, with the line at which it gets
// too much.
func TestTheCompilationOfAScriptIsBounded(t *testing.T) {
	list := func(format string, from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	s := sandbox(t)
	for name, c := range map[string]struct {
		source string
		line   int // 0: it is accepted
	}{
		"names and numbers":    {"local t = {\n" + list("a%[1]d = %[1]d,\n", 0, 1200) + "}", 0},
		"too many":             {"local t = {\n" + list("a%[1]d = %[1]d,\n", 0, 2400) + "}", 1400},
		"in statements":        {"local t = {}\n" + list("t.a%d = 1\n", 0, 2000), 0},
		"too many statements":  {"local t = {}\n" + list("t.a%d = 1\n", 0, 4000), 2740},
		"functions":            {"local t = {" + strings.Repeat("function() end,", 400) + "}", 0},
		"names in sight":       {list("local a%d\n", 0, 150) + strings.Repeat("a0 = x\n", 6000), 0},
		"too many in sight":    {list("local a%d\n", 0, 150) + strings.Repeat("x=y\n", 15000), 11000},
		"statements by itself": {strings.Repeat("do end\n", 9000), 0},
	} {
		_, err := accept(s, hook.OnEnqueue, c.source+" function on_enqueue(msg) end")
		var e *Error
		tooLong := errors.As(err, &e) && strings.Contains(e.Text, "too long to compile")
		switch {
		case c.line == 0 && tooLong:
			t.Errorf("%s: %v", name, err)
		case c.line > 0 && (!tooLong || e.Line < c.line*9/10 || e.Line > c.line*11/10):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Limits of a whole script, from both sides.
func TestLimitsOfASource(t *testing.T) {
	s := sandbox(t)
	for text, source := range map[string]func(n int) string{
		"more than 500 functions":     func(n int) string { return "local f " + strings.Repeat("f = function() end ", 499+n) }, // and the hook
		"more than 100 operations":    func(n int) string { return "local x = 1 x = x" + strings.Repeat(" + x", 100+n) },
		"251 arguments, at most 250":  func(n int) string { return "local f function g(...) f(" + strings.Repeat("1,", 249+n) + "...) end" },
		"nested too deeply, at most ": func(n int) string { return strings.Repeat("do ", 390+20*n) + strings.Repeat("end ", 390+20*n) },
	} {
		if _, err := accept(s, hook.OnEnqueue, source(0)+" function on_enqueue(msg) end"); err != nil && strings.Contains(err.Error(), text) {
			t.Errorf("below: %v", err)
		}
		if _, err := accept(s, hook.OnEnqueue, source(1)+" function on_enqueue(msg) end"); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q, got %v", text, err)
		}
	}
}

// What the parser would have to keep unfinished is bounded, and nothing else is.
func TestWhatIsPendingIsBounded(t *testing.T) {
	s := sandbox(t)
	const function = " function on_enqueue(msg) end"
	for name, source := range map[string]string{
		"parentheses": "local a = " + strings.Repeat("(", 2000) + "1" + strings.Repeat(")", 2000),
		"tables":      "local a = " + strings.Repeat("{", 2000) + strings.Repeat("}", 2000),
		"functions":   strings.Repeat("function f() ", 2000) + strings.Repeat("end ", 2000),
		"blocks":      strings.Repeat("if a then while b do repeat ", 500) + strings.Repeat("until c end end ", 500),
		"concats":     "local a = ''" + strings.Repeat(" .. ''", 2000),
		"calls":       "local a = ''" + strings.Repeat(" .. f'' .. f{} .. f(1, 2)", 1000),
		"powers":      "local a = 1" + strings.Repeat(" ^ a.b", 2000),
		"signs":       "local a = 1" + strings.Repeat(" - -1", 2000),
		"nots":        "local a =" + strings.Repeat(" not", 2000) + " 1",
		"lengths":     "local a =" + strings.Repeat(" #", 2000) + " b",
		"never ends":  strings.Repeat("(", 2000),
	} {
		if _, err := accept(s, hook.OnEnqueue, source+function); err == nil || !strings.Contains(err.Error(), "on_enqueue:1: nested too deeply, or too many operators") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, source := range map[string]string{
		"assignments":    "local a, b " + strings.Repeat("a = a .. b ^ b ", 2000),
		"separated":      "local a, b " + strings.Repeat("a = #b; b = -a;", 2000),
		"calls":          "local f function g() " + strings.Repeat("f(-f) f{ not f } f'a' ", 700) + "end",
		"lists":          "local a = {" + strings.Repeat("-1, ", 2000) + "}",
		"brackets":       "local a function g() " + strings.Repeat("a[#a](-a) ", 1000) + "end",
		"blocks":         "local a " + strings.Repeat("if not a then elseif not a then else end ", 600) + strings.Repeat("repeat until not a while not a do break end for i = -1, -a do end ", 300),
		"sums":           "local a " + strings.Repeat("a = a - a * a - a ", 1000),
		"comments, text": "local a " + strings.Repeat("--((((\n a = '((((' --[[((((]] a = [[((((]] ", 800),
	} {
		if _, err := accept(s, hook.OnEnqueue, source+function); err != nil && strings.Contains(err.Error(), "operators") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is nested too deeply is told so, wherever it stands.
func TestNestingInFunctionsIsRefusedInItsWords(t *testing.T) {
	_, err := accept(sandbox(t), hook.OnEnqueue, strings.Repeat("function f() ", 500)+strings.Repeat("end ", 500))
	if err == nil || !strings.Contains(err.Error(), "nested too deeply") {
		t.Error(err)
	}
}

// waitingLoads is a queue whose classes have both used up their credit.
func waitingLoads() *loadQueue {
	q := &loadQueue{}
	for i := range q.classes {
		q.classes[i].paid = time.Now().Add(loadCredit + time.Second)
	}
	return q
}

// loadAs has callers load and returns, when all of them are done, who loaded in which order.
// Each load costs a second of payment.
func loadAs(q *loadQueue, callers ...hook.Caller) (order []string) {
	var all sync.WaitGroup
	for _, by := range callers {
		all.Go(func() {
			if err := q.enter(by); err != nil {
				order = append(order, err.Error())
				return
			}
			name := by.Name // one load at a time: no lock is needed
			if by.Trial {
				name += "?"
			}
			order = append(order, name)
			q.leave(by, effort{steps: int(time.Second / loadShare / effortStep)})
		})
		synctest.Wait() // they come in this order
	}
	all.Wait()
	return order
}

// However many trials wait, the hook of a queue is loaded as soon as its own class has paid.
func TestAHookForAQueueWaitsForNoTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := waitingLoads()
		var callers []hook.Caller
		for range 50 {
			callers = append(callers, hook.Caller{Name: "a", Trial: true})
		}
		order := loadAs(q, append(callers, hook.Caller{Name: "a"}, hook.Caller{Name: "a"})...)
		if first := slices.Index(order, "a"); first > 1 || slices.Index(order[first+1:], "a") > 1 {
			t.Errorf("hooks were loaded after trials that came before: %v", order)
		}
	})
}

// A caller with many loads does not hold up one with few.
func TestCallersTakeTurnsInLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := func(name string) hook.Caller { return hook.Caller{Name: name} }
		got := loadAs(waitingLoads(), by("a"), by("a"), by("a"), by("a"), by("b"), by("b"), by("c"))
		if want := []string{"a", "b", "c", "a", "b", "a", "a"}; !slices.Equal(got, want) {
			t.Errorf("the order is %v, want %v", got, want)
		}
	})
}

// A caller that goes waits no longer, and its load is not made and not paid for.
func TestACallerThatGoesGivesUpItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := waitingLoads()
		gone := make(chan struct{})
		left := make(chan error, 2)
		for range 2 {
			go func() { left <- q.enter(hook.Caller{Name: "a", Gone: gone}) }()
		}
		synctest.Wait()
		close(gone)
		for range 2 {
			if err := <-left; !errors.Is(err, hook.ErrGone) {
				t.Errorf("a caller that has gone gets %v", err)
			}
		}
		paid := q.classes[0].paid
		if n := len(q.classes[0].lines) + q.classes[0].waiting; n != 0 || q.loading {
			t.Errorf("%d places are left, loading %v", n, q.loading)
		}
		if got := loadAs(q, hook.Caller{Name: "b"}); !slices.Equal(got, []string{"b"}) || q.classes[0].paid.Sub(paid) != time.Second {
			t.Errorf("then %v load, and %v is paid", got, q.classes[0].paid.Sub(paid))
		}
	})
}

// The right to load that a caller is given as it goes is passed on.
func TestACallerThatGoesAtItsTurnPassesItOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 { // which of the two a goroutine notices first is chance
			q := &loadQueue{loading: true}
			gone, left := make(chan struct{}), make(chan error, 1)
			go func() { left <- q.enter(hook.Caller{Name: "a", Gone: gone}) }()
			synctest.Wait()
			q.mu.Lock()
			close(gone)
			q.loading = false
			q.grant()
			q.mu.Unlock()
			if err := <-left; err == nil {
				q.leave(hook.Caller{Name: "a"}, effort{})
			}
			if got := loadAs(q, hook.Caller{Name: "b"}); !slices.Equal(got, []string{"b"}) {
				t.Fatalf("the next load is of %v", got)
			}
		}
	})
}

// A class bounds what waits, of one caller and of all.
func TestTheQueueOfLoadsIsBounded(t *testing.T) {
	c := loadClass{paid: time.Now().Add(loadCredit + time.Hour)} // nothing is loaded meanwhile
	for n := range callerLoadsMax + 1 {
		if _, ok := c.join("a"); ok != (n < callerLoadsMax) {
			t.Errorf("load %d of a caller may wait: %v", n+1, ok)
		}
	}
	for n := callerLoadsMax; n <= loadsMax; n++ {
		if _, ok := c.join(fmt.Sprint("b", n/callerLoadsMax)); ok != (n < loadsMax) {
			t.Errorf("load %d may wait: %v", n+1, ok)
		}
	}
	s := sandbox(t)
	s.loads.classes[1] = c
	if _, err := s.Load(hook.Caller{Name: "a", Trial: true}, hook.OnEnqueue, "function on_enqueue() end"); !errors.Is(err, hook.ErrBusy) {
		t.Errorf("beyond the bound: %v", err)
	}
	if _, err := s.Load(hook.Caller{Name: "a"}, hook.OnEnqueue, "function on_enqueue() end"); err != nil {
		t.Errorf("of the other class: %v", err)
	}
}
