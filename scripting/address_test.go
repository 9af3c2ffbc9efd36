package scripting

import (
	"fmt"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/hook"
)

// deeds are what a script can do with two values and be told about in a text. The
// library's functions, each with some arguments, come in addition.
func deeds(s *Sandbox) []string {
	all := []string{
		"return a[b]", "a[b] = 1", "return a.x", "a.x = 1", "return a[b][a]", "return a(b)", "return a:x(b)", "return a:tostring()",
		"return a .. b", "return a .. 'x' .. b", "return a + b", "return a % b", "return -a", "return #a", "return a < b", "return a <= b", "return a == b",
		"for i = a, b do break end", "for i = 1, a, b do break end", "for k in a, b do break end", "return { [a] = b }", "return { a = a, [b] = b }",
		"return setmetatable({}, { __index = a })[b]", "setmetatable({}, { __newindex = a })[b] = 1",
		"return setmetatable({}, { __index = function(t, k) return a[b] end }).x", "return setmetatable({}, { __call = a })(b)",
		"return tostring(setmetatable({}, { __tostring = function() return a end }))", "return setmetatable({}, { __concat = a }) .. b",
		"return string.format('%s %s', a, b)", "return string.format('%d', a)", "return string.format('%q', a)", "error(a)", "error(a, 2)",
		"return xpcall(function() return a[b] end, function(e) return e end)", "return xpcall(function() return a[b] end, a)",
		"return pcall(pcall, function() return a[b] end)", "return pcall(error, a)", "return ('x'):gsub('x', a)", "return ('x'):gsub('x', { x = a })",
	}
	s.lib.globals.ForEach(func(name, v lua.LValue) {
		if _, ok := v.(*lua.LFunction); ok {
			all = append(all, fmt.Sprintf("return %s(a, b)", name), fmt.Sprintf("return %s(a, b, a)", name))
		}
		if library, ok := v.(*lua.LTable); ok {
			library.ForEach(func(function, _ lua.LValue) {
				all = append(all, fmt.Sprintf("return %s.%s(a, b)", name, function), fmt.Sprintf("return %s.%s('x', a, b)", name, function),
					fmt.Sprintf("return %s.%s({ a, b }, a, b)", name, function))
			})
		}
	})
	return all
}

// No text that a script can come by has an address in it, which would differ from run
// to run, and tell of the process what is nobody's business. Nor has an error that is
// shown to people.
func TestNoTextHasAnAddress(t *testing.T) {
	const source = `
function on_enqueue(msg)
  local values = { true, 1.5, "s", {}, function() end, msg, msg.headers, string.find, string }
  local texts = 0
  local function clean(...)
    for i = 1, select("#", ...) do
      local text = tostring((select(i, ...)))
      if text:find("0x", 1, true) then error("ADDRESS in " .. text, 0) end
      texts = texts + 1
    end
  end
  for i = 0, #values do
    for j = 0, #values do
      local a, b = values[i], values[j]
      clean(pcall(function() DEED end))
    end
  end
  assert(texts >= 100)
  local a, b = values[A], values[B]
  DEED
end`
	cfg := DefaultConfig()
	cfg.Timeout, cfg.Memory, cfg.Failures = time.Minute, 1<<28, ^uint32(0)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, deed := range deeds(s) {
		for _, pair := range [][2]string{{"0", "4"}, {"1", "5"}, {"2", "6"}, {"5", "7"}, {"6", "8"}} {
			h := load(t, s, hook.OnEnqueue, strings.NewReplacer("DEED", deed, "A]", pair[0]+"]", "B]", pair[1]+"]").Replace(source))
			if trial := h.Try(benchMessage(), benchView(), hook.Bounds{}); trial.Err != nil && (strings.Contains(trial.Err.Error(), "0x") || strings.Contains(trial.Err.Error(), "assertion failed!")) {
				t.Errorf("%s: %v", deed, trial.Err)
				break
			}
		}
	}
}

func TestWhatIsNoAddressStays(t *testing.T) {
	const at, address = "on_enqueue:3: attempt to index a non-table object(", ") with key 'table: 0xc000123abc'"
	for text, want := range map[string]string{
		at + "nil" + address:                    at + "nil) with key 'table'",
		at + "number) with key 'function: 0x1'": at + "number) with key 'function'",
		at + "nil) with key 'x'":                "",
		at + "nil) with key 'table: 0xyz'":      "",
		at + "nil) with key 'table: 0x12":       "",
		at + "nil) with key 'tablet: 0x12'":     "",
		at + "nil" + address + " and more":      "",
		at:                                      "",
		"my own: 0x12'":                         "",
	} {
		if want == "" {
			want = text
		}
		if got := withoutAddress(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
