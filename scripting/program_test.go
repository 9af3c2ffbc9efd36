package scripting

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// Most scripts run without an environment of their own and give their result
// field by field. Which way a script goes must not be seen in what it does.
func TestAScriptDoesTheSameWithAndWithoutAnEnvironment(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	for name, c := range map[string]struct {
		source string
		bare   bool
		want   string
	}{
		"plain":               {"function on_enqueue(msg) return { fairness_key = 'k', weight = 2 } end", true, "fairness_key=k weight=2"},
		"globals":             {"x = 'a' function f() x = x .. 'b' return x end function on_enqueue() f() return { fairness_key = f() } end", true, "fairness_key=abb"},
		"_G":                  {"x = 'a' function on_enqueue() return { fairness_key = _G.x .. _G['x'] } end", false, "fairness_key=aa"},
		"_G that is a local":  {"function on_enqueue() local _G = { x = 'l' } return { fairness_key = _G.x } end", true, "fairness_key=l"},
		"global in a block":   {"do local x = 1 end x = 'g' function on_enqueue() return { fairness_key = x } end", true, "fairness_key=g"},
		"library replaced":    {"local old = tostring function tostring(v) return 'my' .. old(v) end function on_enqueue() return { fairness_key = tostring(1) } end", true, "fairness_key=my1"},
		"assigned in a call":  {"function on_enqueue() y = 'late' return { fairness_key = y } end", true, "fairness_key=late"},
		"returns early":       {"function on_enqueue() return { weight = 3 } end return 7", false, "weight=3"},
		"by assignment":       {"on_enqueue = function() return { weight = 4 } end", true, "weight=4"},
		"recursive":           {"function on_enqueue(m, n) if not n then return { weight = on_enqueue(m, 5).weight + 1 } end return { weight = n } end", true, "weight=6"},
		"called by another":   {"function on_enqueue(m) return { weight = 5 } end local f = on_enqueue function on_enqueue(m) local t = f(m) t.weight = t.weight + 1 return t end", true, "weight=6"},
		"defined twice":       {"function on_enqueue() return { weight = 1 } end function on_enqueue() return { weight = 2 } end", true, "weight=2"},
		"nested function":     {"function on_enqueue() local function f() return { weight = 7 } end local t = f() return { weight = t.weight } end", true, "weight=7"},
		"fields that are nil": {"function on_enqueue(msg) return { fairness_key = msg.headers.none, weight = 2, cost = nil } end", true, "weight=2"},
		"many values":         {"local function two() return 2, 3 end function on_enqueue() return { weight = two(), cost = (two()) } end", true, "weight=2 cost=2"},
		"twice the same":      {"function on_enqueue() return { weight = 2, weight = 3 } end", true, "weight=3"},
		"empty":               {"function on_enqueue() return {} end", true, "nothing"},
		"two values":          {"function on_enqueue() return { weight = 2 }, { weight = 3 } end", true, "weight=2"},
		"nothing":             {"function on_enqueue() end", true, "nothing"},
		"in a variable":       {"function on_enqueue() local t = { weight = 2 } t.cost = 3 return t end", true, "weight=2 cost=3"},
		"with a metatable":    {"function on_enqueue() return setmetatable({ weight = 2 }, { __index = { cost = 3 } }) end", true, "weight=2"},
		"in a branch":         {"if true then function on_enqueue() return { weight = 8 } end end", true, "weight=8"},
		"method of a table":   {"t = {} function t.on_enqueue() return 1 end function on_enqueue() return { weight = t.on_enqueue() } end", true, "weight=1"},
		"local of that name":  {"function on_enqueue() local on_enqueue = 2 return { weight = on_enqueue } end", true, "weight=2"},
		"many globals":        {manyGlobals(100) + "function on_enqueue() return { weight = g99 } end", false, "weight=99"},
		"many locals":         {strings.ReplaceAll(manyGlobals(150), "g", "local g") + manyGlobals(60) + "h = 1 function on_enqueue() return { weight = 1 } end", true, "weight=1"},
		"too many locals":     {strings.ReplaceAll(manyGlobals(180), "g", "local g") + strings.ReplaceAll(manyGlobals(50), "g", "h") + "function on_enqueue() return { weight = h49 } end", false, "weight=49"},
	} {
		h, err := accept(s, hook.OnEnqueue, c.source)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for range 2 { // and nothing is kept
			trial := h.Try(benchMessage(), nil, hook.Bounds{})
			if got := decided(&trial, hook.OnEnqueue); trial.Err != nil || got != c.want {
				t.Errorf("%s: %s, %v, want %s", name, got, trial.Err, c.want)
			}
		}
		if bare := h.script.bare; bare != c.bare {
			t.Errorf("%s: bare is %v", name, bare)
		}
	}
}

func manyGlobals(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "g%d = %d\n", i, i)
	}
	return b.String()
}
