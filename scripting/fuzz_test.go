package scripting

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// harmless runs a source as a hook and checks what has to hold of any: it ends,
// what it decides is allowed, and an error is fit to be shown.
func harmless(t testing.TB, s *Sandbox, kind hook.Kind, source string, msg *hook.Message) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadTime()
	h, err := accept(s, kind, source)
	if err != nil {
		fit(t, err)
		return
	}
	trial := h.Try(msg, benchView(), hook.Bounds{})
	// Two hundred times what is allowed, of the processor: only an endless loop somewhere takes that.
	if took := threadTime() - start; took > 200*s.cfg.Timeout {
		t.Errorf("took %v of the processor", took)
	}
	if trial.Err != nil {
		fit(t, trial.Err)
		if strings.Contains(trial.Err.Error(), "the machine failed") {
			t.Errorf("%v\n%s", trial.Err, source)
		}
	}
	if trial.Memory > int64(s.cfg.Memory) {
		t.Errorf("%d bytes", trial.Memory)
	}
	d := &trial.Enqueue
	l := &s.cfg.Limits
	if len(d.Key) > l.Key || d.Weight > l.Weight || d.Cost > l.Weight || len(d.Throttles) > l.Throttles ||
		d.Priority != nil && *d.Priority > 9 || d.Delay != nil && (*d.Delay < 0 || *d.Delay > delayMax) {
		t.Errorf("decided %+v", *d)
	}
	for _, k := range d.Throttles {
		if k == "" || len(k) > l.Throttle {
			t.Errorf("throttle key %q", k)
		}
	}
}

// FuzzSource runs mutations of the corpus.
func FuzzSource(f *testing.F) {
	for _, a := range attacks(f) {
		f.Add(a.source)
	}
	for _, p := range programs() {
		f.Add("function on_enqueue(msg)\n" + p + "\nend")
	}
	f.Add(tenantScript(f))
	s := sandbox(f)
	f.Fuzz(func(t *testing.T, source string) {
		harmless(t, s, hook.OnEnqueue, source, benchMessage())
	})
}

// FuzzMessage gives a script that looks at everything messages of all kinds.
func FuzzMessage(f *testing.F) {
	f.Add("q", "k", "h", []byte("v"), 1, uint32(1), uint32(3), "error")
	f.Add("", "", "", []byte{}, -1, uint32(0), uint32(0), "")
	f.Add("\xff\x00", "\n", "tenant", []byte("\xf0\x9f\x92\xa9"), 1<<40, ^uint32(0), ^uint32(0), strings.Repeat("x", 1<<18))
	s := sandbox(f)
	const source = `
local function all(msg)
  local s = { msg.queue, msg.fairness_key, msg.payload_size, msg.weight, tostring(msg.id), tostring(msg.attempts), tostring(msg.error) }
  for name, value in pairs(msg.headers) do s[#s + 1] = name .. value end
  for _, t in ipairs(msg.throttle_keys) do s[#s + 1] = t end
  s = table.concat(s, ","):gsub("%c", "?")
  return s, fila.hash(s, 7), #fila.split(s, ",")
end
function on_enqueue(msg)
  local s, h = all(msg)
  return { fairness_key = s:sub(1, 512), weight = h + 1, throttle_keys = { msg.headers[msg.queue] } }
end
function on_failure(msg)
  local s, h, n = all(msg)
  return { action = h > 3 and "dlq" or "retry", delay_ms = fila.backoff(msg.attempts or 0, n, 1e6) }
end`
	f.Fuzz(func(t *testing.T, queue, key, name string, value []byte, size int, weight, attempts uint32, text string) {
		msg := &hook.Message{
			Queue: queue, Key: key, PayloadSize: size, Meta: storage.Meta{Weight: weight, Throttles: []string{key, name, ""}},
			Headers: []storage.Header{{Name: []byte(name), Value: value}, {Name: value, Value: []byte(name)}, {}},
			ID:      name, Attempts: attempts, Error: text,
		}
		harmless(t, s, hook.OnEnqueue, source, msg)
		harmless(t, s, hook.OnFailure, source, msg)
	})
}

// FuzzPattern matches random patterns: here, and where gopher-lua's own matcher
// agrees that a pattern is well formed, with the same result.
func FuzzPattern(f *testing.F) {
	for _, p := range []string{"(%a+)=(%d*)", "^%s*(.-)%s*$", "[^%w_]", "%b()", "%f[%a]", "(a*)(b-)%1", "()x?", "[]-a]", "%", "[a-", "((("} {
		f.Add("key=12 (x) ab_a", p)
	}
	s := sandbox(f)
	f.Fuzz(func(t *testing.T, subject, pattern string) {
		if len(subject) > 60 || len(pattern) > 20 {
			return
		}
		q := func(s string) string {
			var b strings.Builder
			b.WriteByte('"')
			for i := range len(s) {
				fmt.Fprintf(&b, "\\%03d", s[i])
			}
			b.WriteByte('"')
			return b.String()
		}
		body := "local out = {} for i, v in ipairs({ (" + q(subject) + "):match(" + q(pattern) + ") }) do out[i] = tostring(v) end return table.concat(out, '|')"
		harmless(t, s, hook.OnEnqueue, "function on_enqueue(msg) "+body+" end", benchMessage())
		if got, err := evaluate(t, s, body); err == nil && settled(pattern) {
			l := lua.NewState()
			defer l.Close()
			if l.DoString(body) == nil && got != l.Get(-1).String() {
				t.Errorf("%q of %q: %q, gopher-lua says %q", pattern, subject, got, l.Get(-1).String())
			}
		}
	})
}

// settled tells whether all matchers agree what the pattern means: neither %f,
// which gopher-lua does not have, nor sets and classes at their edges.
func settled(pattern string) bool {
	return !strings.ContainsAny(pattern, "[]%\x00") && strings.Count(pattern, "$") == 0
}

// A grammar makes programs that a mutation would hardly find: they are well
// formed, and do what they like with each other's values.
func TestRandomProgramsAreHarmless(t *testing.T) {
	s := sandbox(t)
	const seed = 4
	programs := uint64(400)
	if testing.Short() {
		programs = 60
	}
	for i := range programs {
		g := grammar{rng: rand.New(rand.NewPCG(seed, i))}
		g.block(3)
		harmless(t, s, hook.OnEnqueue, "function on_enqueue(msg)\nlocal a, b, c = 1, 'x', {}\n"+g.String()+"\nreturn c end", benchMessage())
		if t.Failed() {
			t.Fatalf("program %d of seed %d:\n%s", i, seed, g.String())
		}
	}
}

type grammar struct {
	strings.Builder
	rng *rand.Rand
}

func (g *grammar) pick(options ...string) string { return options[g.rng.IntN(len(options))] }

func (g *grammar) block(depth int) {
	for range 1 + g.rng.IntN(4) {
		g.statement(depth - 1)
	}
}

func (g *grammar) statement(depth int) {
	if depth <= 0 {
		fmt.Fprintf(g, "%s = %s\n", g.pick("a", "b", "c", "d"), g.expr(2))
		return
	}
	switch g.rng.IntN(11) {
	case 0:
		fmt.Fprintf(g, "if %s then\n", g.expr(2))
		g.block(depth)
		g.WriteString("else\n")
		g.block(depth)
		g.WriteString("end\n")
	case 1:
		fmt.Fprintf(g, "for i = 1, %s do\n", g.pick("3", "100", "1e9", "#tostring(a)"))
		g.block(depth)
		g.WriteString("end\n")
	case 2:
		fmt.Fprintf(g, "for k, v in pairs(%s) do\n", g.pick("c", "{ a, b, x = c }", "_G", "string", "msg.headers"))
		g.block(depth)
		g.WriteString("end\n")
	case 3:
		fmt.Fprintf(g, "pcall(function(...)\n")
		g.block(depth)
		fmt.Fprintf(g, "end, %s)\n", g.expr(1))
	case 4:
		fmt.Fprintf(g, "c = type(c) == 'table' and c or {}\nc[%s] = %s\n", g.expr(1), g.expr(2))
	case 5:
		fmt.Fprintf(g, "a, c.x, b = %s, %s\n", g.expr(2), g.expr(1))
	case 6:
		fmt.Fprintf(g, "local function f(a, ...)\n")
		g.block(depth)
		fmt.Fprintf(g, "return %s, ... end\nb = f(%s)\n", g.expr(1), g.expr(1))
	case 7:
		fmt.Fprintf(g, "c = setmetatable({ %s }, { %s = function(...) return %s end })\n", g.expr(1), g.pick("__index", "__newindex", "__call", "__concat", "__eq", "__lt", "__add", "__unm", "__tostring", "__len"), g.expr(2))
	case 8:
		fmt.Fprintf(g, "repeat local z = %s\n", g.expr(1))
		g.block(depth)
		fmt.Fprintf(g, "until z or %s\n", g.expr(1))
	default:
		fmt.Fprintf(g, "%s = %s\n", g.pick("a", "b", "c", "_G.g"), g.expr(3))
	}
}

func (g *grammar) expr(depth int) string {
	if depth <= 0 {
		return g.pick("a", "b", "c", "nil", "true", "1", "-1.5", "1e300", "'x'", "'%a+'", "{}", "msg", "msg.headers", "0/0", "function() return a end", "g", "c")
	}
	e := func() string { return g.expr(depth - 1) }
	switch g.rng.IntN(9) {
	case 0:
		return "(" + e() + g.pick(" .. ", " + ", " * ", " == ", " < ", " and ", " or ", " ^ ", " % ") + e() + ")"
	case 1:
		return g.pick("string.rep", "string.format", "string.gsub", "string.find", "string.match", "string.sub", "table.concat", "table.insert",
			"table.remove", "table.sort", "select", "unpack", "tostring", "tonumber", "next", "pcall", "xpcall", "error", "rawset", "rawget", "setmetatable",
			"getmetatable", "fila.split", "fila.hash", "fila.backoff", "fila.get", "math.floor", "math.max", "assert", "type", "ipairs", "pairs") +
			"(" + e() + ", " + e() + ", " + e() + ")"
	case 2:
		return "{ " + e() + ", x = " + e() + ", [" + e() + " or 1] = " + e() + ", " + e() + " }"
	case 3:
		return "tostring(" + e() + "):" + g.pick("rep", "upper", "sub", "gsub", "byte", "len", "format", "gmatch") + "(" + e() + ")"
	case 4:
		return "c[" + e() + "]"
	case 5:
		return "(function(...) return " + e() + ", ... end)(" + e() + ")"
	case 6:
		return "not " + e()
	case 7:
		return "#tostring(" + e() + ")"
	default:
		return e()
	}
}

// Hooks of several scripts, good and bad, run concurrently without seeing each other and
// without data races.
func TestHooksRunAtTheSameTime(t *testing.T) {
	s := sandbox(t)
	tenant := load(t, s, hook.OnEnqueue, tenantScript(t))
	bad := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) x = (x or 0) + 1 if x > 1 then error('kept') end local t = {} while true do t[#t + 1] = {} end end")
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				if d, err := tenant.OnEnqueue(time.Now(), benchMessage(), benchView(), hook.Bounds{}); err != nil || d.Key != "acme" || d.Weight != 3 || len(d.Throttles) != 1 {
					t.Errorf("%+v, %v", d, err)
				}
			}
		})
		group.Go(func() {
			for range 5 {
				var e *Error
				if err := bad.Try(benchMessage(), nil, hook.Bounds{}).Err; !errors.As(err, &e) || !e.Limit {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if st := tenant.Stats(time.Now()); st.Calls != 200 || st.Errors != 0 {
		t.Errorf("%+v", st)
	}
}
