package scripting

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

func benchMessage() *hook.Message {
	h := func(name, value string) storage.Header {
		return storage.Header{Name: []byte(name), Value: []byte(value)}
	}
	return &hook.Message{
		Queue: "orders", PayloadSize: 256, Key: hook.DefaultKey, Meta: storage.Meta{Weight: 1},
		Headers: []storage.Header{h("content-type", "application/json"), h("tenant", "acme"), h("trace", "7f3a")},
	}
}

// fake is a view of settings, signals and budgets. Signals are by subject, name and window, with a
// blank between them.
type fake struct {
	settings map[string]string
	signals  map[string]float64
	budgets  map[string]int64
}

// Get implements hook.View.
func (f fake) Get(key string) (string, bool) { v, ok := f.settings[key]; return v, ok }

// Signal implements hook.View.
func (f fake) Signal(subject, name, window string) (float64, error) {
	if window == "2m" {
		return 0, errors.New(`no window "2m", there are 1m 5m all`)
	}
	return f.signals[subject+" "+name+" "+cmp.Or(window, "1m")], nil
}

// Budget implements hook.View.
func (f fake) Budget(name string) (int64, bool) { n, ok := f.budgets[name]; return n, ok }

func benchView() hook.View {
	return fake{settings: map[string]string{"weight.acme": "3"}, budgets: map[string]int64{"acme": 750, "bolt": -3}, signals: map[string]float64{"acme failed 1m": 0.5, "7 failed all": 9}}
}

// BenchmarkHooks runs hooks as the engine does, with both budgets on and the breaker and the
// counts around them: the two kinds beside each other, and a decision that is recalled.
func BenchmarkHooks(b *testing.B) {
	failed, view := given(b, "attempts 3; error timeout")
	for _, c := range []struct {
		name, source string
		kind         hook.Kind
		memo         int
		msg          *hook.Message
		view         hook.View
	}{
		{"on_enqueue", tenantScript(b), hook.OnEnqueue, 0, benchMessage(), benchView()},
		{"on_enqueue-recalled", tenantScript(b), hook.OnEnqueue, DefaultConfig().Memo, benchMessage(), benchView()},
		{"on_failure", failureScript(b), hook.OnFailure, 0, failed, view},
	} {
		b.Run(c.name, func(b *testing.B) {
			cfg := DefaultConfig()
			cfg.Memo = c.memo
			s, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			benchmarkHook(b, load(b, s, c.kind, c.source), c.msg, c.view)
		})
	}
}

// benchmarkHook reports the p50 and p99 of calls, as measured here and as the statistics of the
// hook have them.
func benchmarkHook(b *testing.B, h *Hook, msg *hook.Message, view hook.View) {
	b.Helper()
	now := time.Now()
	call := func() error { _, err := h.OnEnqueue(now, msg, view, hook.Bounds{}); return err }
	if h.Kind() == hook.OnFailure {
		call = func() error { _, err := h.OnFailure(now, msg, view, hook.Bounds{}); return err }
	}
	times := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		if len(times) < cap(times) {
			times = append(times, time.Since(start))
		}
	}
	slices.Sort(times)
	st := h.Stats(now)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(float64(st.Percentile(0.99).Nanoseconds()), "stats-p99-ns")
}

// failureScript is the first of the cookbook that decides about failures.
func failureScript(t testing.TB) string {
	t.Helper()
	for _, r := range cookbook(t) {
		if strings.Contains(r.source, "function on_failure") {
			return r.source
		}
	}
	t.Fatal("the cookbook has no on_failure script")
	return ""
}

// tenantScript is the first of the cookbook.
func tenantScript(t testing.TB) string {
	t.Helper()
	return cookbook(t)[0].source
}

// BenchmarkCookbook runs every recipe on its first example.
func BenchmarkCookbook(b *testing.B) {
	s := sandbox(b)
	for _, r := range cookbook(b) {
		b.Run(strings.NewReplacer(" ", "-", "/", "").Replace(r.title), func(b *testing.B) {
			kind := hook.OnEnqueue
			if strings.Contains(r.source, "function on_failure") {
				kind = hook.OnFailure
			}
			h := load(b, s, kind, r.source)
			left, _, _ := strings.Cut(r.cases[0], "→")
			msg, view := given(b, left)
			b.ReportAllocs()
			for b.Loop() {
				h.Try(msg, view, hook.Bounds{})
			}
		})
	}
}

// BenchmarkLoad is what FILA.SCRIPT LOAD takes when it need not wait.
func BenchmarkLoad(b *testing.B) {
	s := sandbox(b)
	source := tenantScript(b)
	b.ReportAllocs()
	for b.Loop() {
		load(b, s, hook.OnEnqueue, source)
	}
}

// BenchmarkRecall is a decision that is known, and one among so many tenants that it
// hardly ever is.
func BenchmarkRecall(b *testing.B) {
	for _, tenants := range []int{0, 1, 100, 10_000, 1_000_000} { // 0: nothing is remembered
		b.Run(strconv.Itoa(tenants), func(b *testing.B) {
			cfg := DefaultConfig()
			if tenants == 0 {
				cfg.Memo = 0
			}
			s, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			h := load(b, s, hook.OnEnqueue, tenantScript(b))
			msg := benchMessage()
			now := time.Now()
			rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // nothing is secret
			b.ReportAllocs()
			for b.Loop() {
				msg.Headers[1].Value = strconv.AppendInt(msg.Headers[1].Value[:0], int64(rng.IntN(max(tenants, 1))), 10)
				if _, err := h.OnEnqueue(now, msg, benchView(), hook.Bounds{}); err != nil {
					b.Fatal(err)
				}
			}
			st := h.Stats(now)
			b.ReportMetric(float64(st.Recalled)/float64(st.Calls), "recalled")
		})
	}
}

// BenchmarkLongestPiece reports for each attack how long it takes to load, and the longest
// time until it yields while it runs. With one processor for Go a message may wait that
// long at several steps of its path.
func BenchmarkLongestPiece(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, a := range attacks(b) {
		b.Run(a.name, func(b *testing.B) {
			s := sandbox(b)
			var last time.Time
			var longest time.Duration
			s.slots = make(slots, 1)
			s.slots <- &slot{yield: func() {
				longest = max(longest, time.Since(last))
				last = time.Now()
			}}
			var load, call time.Duration
			for b.Loop() {
				last = time.Now()
				h, err := accept(s, hook.OnEnqueue, a.source)
				load = max(load, time.Since(last))
				if err != nil {
					continue
				}
				longest, last = 0, time.Now()
				h.Try(benchMessage(), benchView(), hook.Bounds{})
				call = max(call, longest, time.Since(last))
			}
			b.ReportMetric(float64(load.Nanoseconds())/1e3, "µs-load")
			b.ReportMetric(float64(call.Nanoseconds())/1e3, "µs-call")
		})
	}
}
