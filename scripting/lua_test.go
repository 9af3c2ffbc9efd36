package scripting

import (
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/hook"
)

// evaluate runs a piece of Lua in the sandbox and returns what its `out` says,
// as text.
func evaluate(t testing.TB, s *Sandbox, body string) (string, error) {
	t.Helper()
	h, err := accept(s, hook.OnEnqueue, "function on_enqueue(msg)\n"+body+"\nend")
	if err != nil {
		return "", err
	}
	m := s.take()
	defer s.give(m)
	within := s.cfg.bounds(hook.Bounds{})
	v, err := m.run(h.script, &within, benchMessage(), benchView())
	if err != nil {
		return "", err
	}
	return v.value().String(), nil
}

// programs are pieces of Lua that must mean here what they mean in gopher-lua
// with its own library: what the rewriting touches, above all.
func programs() []string {
	return strings.Split(strings.TrimSpace(`
return "a" .. "b" .. 1 .. 2.5 .. "c"
---
return ("a" .. "b") .. ("c" .. "d") .. #("e" .. "f")
---
local t = setmetatable({}, { __concat = function(a, b) return type(a) .. "+" .. type(b) end })
return (1 .. t) .. (t .. 1) .. ("x" .. "y" .. t) .. (t .. "x" .. "y")
---
local t = { 1, 2, 3, x = "X", [10] = "ten", ["y z"] = "Y", [1 + 3] = "four" }
return #t .. t[1] .. t[3] .. t.x .. t[10] .. t["y z"] .. t[4]
---
local function three() return 1, 2, 3 end
local a, b, c, d, e = { three() }, { three(), three() }, { (three()) }, { three(), x = 1 }, { x = 1, three() }
return #a .. #b .. #c .. #d .. #e
---
local function f(...) return select("#", ...), { ... }, { "first", ... } end
local n, t, u = f("a", nil, "c")
return n .. tostring(t[1]) .. tostring(t[2]) .. tostring(t[3]) .. u[1] .. u[4]
---
local t = {}
t.a, t.b, t.c = 1, 2
return t.a .. t.b .. tostring(t.c)
---
local t, i = { 10, 20 }, 1
i, t[i] = i + 1, "x"
return i .. t[1] .. t[2]
---
local a, b = { 1 }, { 2 }
a[1], b[1] = b[1], a[1]
return a[1] .. b[1]
---
local function pair() return "p", "q" end
local t = {}
t.x, t.y = pair()
local z
z, t.z = pair()
t[1], t[2], t[3] = 0, pair()
return t.x .. t.y .. z .. t.z .. t[1] .. t[2] .. t[3]
---
local t = { inner = {} }
function t.inner.f(a) return a .. "!" end
function t.inner:g(a) return self.name .. a end
t.inner.name = "n"
return t.inner.f("x") .. t.inner:g("y")
---
local function fact(n) if n <= 1 then return 1 end return n * fact(n - 1) end
return fact(10) .. ""
---
local function loop(n) if n == 0 then return "done" end return loop(n - 1) end
return loop(20)
---
local fs = {}
for i = 1, 3 do fs[i] = function() i = i + 1; return i end end
return fs[1]() .. fs[1]() .. fs[2]() .. fs[3]()
---
local i, log = 0, ""
repeat local done = i >= 3; i = i + 1; log = log .. i until done
return log
---
local log = ""
for i = 10, 1, -3 do log = log .. i .. "," end
for k, v in ipairs({ "a", "b", nil, "d" }) do log = log .. k .. v end
return log
---
local keys = {}
for k, v in pairs({ 7, 8, a = 1 }) do keys[#keys + 1] = tostring(k) .. "=" .. tostring(v) end
table.sort(keys)
return table.concat(keys, ";")
---
local t = setmetatable({}, { __index = function(t, k) return k .. "?" end })
t.x = 1
return t.x .. t.y
---
local log = {}
local t = setmetatable({ old = 1 }, { __newindex = function(t, k, v) rawset(log, k, v) end })
t.old, t.new = 2, 3
return t.old .. tostring(rawget(t, "new")) .. log.new
---
local base = { greet = function(self) return "hi " .. self.name end }
local t = setmetatable({ name = "bob" }, { __index = base })
return t:greet()
---
local t = setmetatable({}, { __call = function(self, a, b) return a .. b end })
return t("x", "y")
---
local mt = { __eq = function() return true end, __lt = function() return true end, __le = function() return false end,
  __add = function() return "add" end, __unm = function() return "unm" end, __len = function() return 42 end }
local a, b = setmetatable({}, mt), setmetatable({}, mt)
return tostring(a == b) .. tostring(a < b) .. tostring(a <= b) .. (a + b) .. (-a)
---
return tostring(pcall(error, "x", 0)) .. select(2, pcall(error, "x", 0))
---
local ok, err = pcall(function() error({ code = 7 }) end)
return tostring(ok) .. err.code
---
local ok, a, b = pcall(function(...) return ... end, 1, 2)
return tostring(ok) .. a .. b
---
local ok, e = xpcall(function() error("x", 0) end, function(e) return e .. "handled" end)
return tostring(ok) .. e
---
return tostring(tonumber("0x10")) .. tostring(tonumber("  12  ")) .. tostring(tonumber("abc")) .. tostring(tonumber("")) .. tostring(tonumber("10", 2)) .. tostring(tonumber("zz", 36))
---
return 1e15 .. "," .. 0.1 .. "," .. -0.5 .. "," .. 100 .. "," .. 2^53
---
return string.rep("ab", 3) .. ("x"):rep(0) .. ("x"):rep(-1)
---
return ("hello"):sub(2, 3) .. ("hello"):sub(-3) .. ("hello"):sub(-100, 2) .. ("hello"):sub(4, 100) .. ("hello"):sub(3, 2) .. ("hello"):sub(0)
---
return ("abc"):byte() .. ("abc"):byte(-1) .. select("#", ("abc"):byte(1, -1)) .. select("#", ("abc"):byte(10))
---
return string.char(72, 105) .. ("Hi"):upper() .. ("Hi"):lower() .. ("Hi"):reverse() .. ("Hi"):len()
---
return tostring(("hello world"):find("o w")) .. tostring(("hello"):find("l+")) .. tostring(("a.b"):find(".", 1, true)) .. tostring(("hello"):find("xyz")) .. tostring(("hello"):find(""))
---
return table.concat({ ("key=value"):match("(%w+)=(%w+)") }, "|") .. ("  trim  "):match("^%s*(.-)%s*$") .. tostring(("x"):match("()"))
---
local out = {}
for k, v in ("a=1, b=2, c=3"):gmatch("(%w+)=(%w+)") do out[#out + 1] = k .. v end
for w in ("one two"):gmatch("%a+") do out[#out + 1] = w end
return table.concat(out, ",")
---
return (("hello world"):gsub("o", "0")) .. select(2, ("hello"):gsub("l", "L")) .. (("abc"):gsub("%w", "%0%0")) .. (("abc"):gsub("", "-")) .. (("hello world"):gsub("(%w+) (%w+)", "%2 %1"))
---
return (("$name is $age"):gsub("%$(%w+)", { name = "bob", age = 42 })) .. (("abc"):gsub("b", function() return nil end)) .. (("abc"):gsub("%w", function(c) return c:upper() .. "." end, 2))
---
return ("THE (quick) fox"):find("%((%a+)%)") .. tostring(("f(a(b)c)d"):match("%b()"))
---
return ("abab"):match("(ab)%1") .. tostring(("[x]"):match("[]]")) .. tostring(("a-b"):match("[a%-]+")) .. tostring(("x^"):match("[x^]+")) .. tostring(("09"):match("^[^a-z]+$"))
---
return string.format("%d|%5d|%-5d|%05d|%+d|%x|%X|%o|%c|%%|%s|%q", 42, 42, 42, 42, 42, 255, 255, 8, 65, "s", 'a"b')
---
return string.format("%.2f|%8.3f|%e|%g|%g|%g|%.3s|%5s|%-5s|", 3.14159, 2.5, 12345.678, 0.1, 1e20, 100, "abcdef", "ab", "ab")
---
local t = { "b", "c" }
table.insert(t, "d")
table.insert(t, 1, "a")
local r = table.remove(t, 2) .. table.remove(t)
return r .. table.concat(t, ",") .. #t .. tostring(table.remove({}))
---
local t = { 5, 2, 8, 1 }
table.sort(t)
local s = table.concat(t, ",")
table.sort(t, function(a, b) return a > b end)
return s .. table.concat(t, ",", 2, 3) .. table.maxn(t)
---
return math.floor(2.7) .. math.ceil(2.1) .. math.max(1, 9, 3) .. math.min(4, 2) .. math.abs(-3) .. math.sqrt(16) .. (7 % 3) .. (-7 % 3) .. 2 ^ 10 .. math.fmod(7, 3)
---
return type(nil) .. type(1) .. type("") .. type({}) .. type(type) .. type(true)
---
return select(-1, "a", "b", "c") .. select(2, "a", "b") .. table.concat({ unpack({ 1, 2, 3 }) }, ",") .. table.concat({ unpack({ 1, 2, 3 }, 2) }, ",")
---
x = 1
local function f() x = x + 1; return x end
return f() .. f() .. _G.x .. tostring(_G.y)
---
local t = {}
for i = 1, 100 do t[i] = i end
for i = 1, 100 do t[i] = nil end
return #t .. tostring(next(t))
---
local t = { n = 0 }
while t.n < 5 do t.n = t.n + 1 if t.n == 3 then break end end
return t.n .. ""
---
local function v(a, ...) local x, y = ... return a, y, x end
return table.concat({ v(1, 2, 3) }, ",")
---
return not nil == true and "yes" or "no"
---
local s = "a"
for i = 1, 5 do s = s .. s end
return #s .. ""
---
local n = 0
for _ in pairs({ a = 1, b = 2, [1] = 3, [2.5] = 4, [true] = 5 }) do n = n + 1 end
return n .. ""
---
local t = {} t[1.5] = "f" t[-1] = "m" t[0] = "z" t["1"] = "s"
return t[1.5] .. t[-1] .. t[0] .. t["1"] .. tostring(t[1])
---
return #"abc" .. tostring(#{ 1, 2, nil }) .. tostring("10" + 5) .. tostring("3" * "4") .. 10 / 4
`), "\n---\n")
}

func TestTheRewritingChangesNoMeaning(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	for _, body := range programs() {
		l := lua.NewState()
		var want string
		wantErr := l.DoString("function on_enqueue(msg)\n" + body + "\nend")
		if wantErr == nil {
			wantErr = l.CallByParam(lua.P{Fn: l.GetGlobal("on_enqueue"), NRet: 1, Protect: true})
			if wantErr == nil {
				want = l.Get(-1).String()
			}
		}
		l.Close()
		got, err := evaluate(t, s, body)
		if (err != nil) != (wantErr != nil) {
			t.Errorf("%s\n got error %v\nwant error %v", body, err, wantErr)
		} else if got != want {
			t.Errorf("%s\n got %q\nwant %q", body, got, want)
		}
	}
}

func TestTheLibraryKeepsToLua51WhereGopherLuaDoesNot(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	for body, want := range map[string]string{
		`return tonumber("1e2") .. ""`:                                     "100",
		`return tostring(tonumber("0b11")) .. tostring(tonumber("1_000"))`: "nilnil",
		`return tostring(tonumber("inf")) .. tostring(tonumber("nan"))`:    "nilnil",
		`return tostring(tonumber("--1")) .. tonumber("-0x10")`:            "nil-16",
		`return 1 / 3 .. ""`:                                                                                            "0.33333333333333",
		`return 1 / 0 .. "," .. -1 / 0 .. "," .. -0`:                                                                    "inf,-inf,0",
		`return 12345678901234567890 .. ""`:                                                                             "1.2345678901235e+19",
		`return ("hello"):find("", 10) .. ""`:                                                                           "6",
		`return (("THE (quick) fox"):gsub("%f[%a]%a+", "w"))`:                                                           "w (w) w",
		`return string.format("%5.1f|%-8.2e|%#x|% d|%G", 2.25, 10, 255, 7, 1e-10)`:                                      "  2.2|1.00e+01|0xff| 7|1E-10",
		`return string.format("%.3d|%08.3f|%+.0f", 7, -2.5, 3)`:                                                         "007|-002.500|+3",
		`return tostring({}) .. tostring(tostring)`:                                                                     "tablefunction",
		`return tostring(print) .. tostring(load) .. tostring(string.dump)`:                                             "nilnilnil",
		`local function h(a) local x = 5 a = (tostring(7)) return a .. x end return h(1)`:                               "75",
		`local function h(a) local x = 5 a = a .. "y" .. x return a .. x end return h(1)`:                               "1y55",
		`local function h(a, b) local x = 5 b, a = tostring(a), tostring(b) return a .. b .. x end return h(1, 2)`:      "215",
		`local function h(a) local x = 5 a = tostring(7), x return a .. x end return h(1)`:                              "75",
		`local function h(a, ...) a = { [a or 1] = 2 } return type(a) .. a[1] end return h()`:                           "table2",
		`local function h(a) local x = 5 local b b, a = (tostring(1)), (tostring(2)) return a .. b .. x end return h()`: "215",
		`local function h(a) local x = 5 a = (select(2, 1, 2, 3)) return a .. x end return h()`:                         "25",
		`local function h(a) local x = 5 a = a or tostring(7) return a .. x end return h()`:                             "75",
		`return tostring(arg)`:                                  "nil",
		`return (function(...) return tostring(arg) end)(1, 2)`: "nil",
		`return ("ÄÖ"):lower()`:                                 "ÄÖ",
		`local s = "" for w in ("a,b"):gmatch("(%a?)") do s = s .. "<" .. w .. ">" end return s`: "<a><><b><>",
	} {
		if got, err := evaluate(t, s, body); err != nil || got != want {
			t.Errorf("%s\n got %q, %v\nwant %q", body, got, err, want)
		}
	}
}

// gopher-lua parts a local from the closures that share it when an error is
// caught further up.
func TestALocalOutlivesACaughtError(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	for body, want := range map[string]string{`
local n = 0
local function inc() n = n + 1 end
inc()
pcall(error, "x")
inc()
return n .. ""`: "2", `
local n, get = 0, nil
pcall(function()
  local inner = 1
  get = function() inner = inner + 1 return inner end
  n = 5
  error("x")
end)
n = n + 1
return n .. get() .. get()`: "623", `
local log = ""
local function add(s) log = log .. s end
for i = 1, 3 do
  local ok, e = pcall(function()
    add("<" .. i)
    pcall(function() add("i") error() end)
    if i == 2 then error({ i }) end
    add(">")
  end)
  if not ok then add("!" .. e[1]) end
end
return log`: "<1i><2i!2<3i>", `
local ok, e = xpcall(function() local x = nil return x.y end, function(e) return "seen " .. e end)
return tostring(ok) .. e`: "falseseen on_enqueue:3: attempt to index a non-table object(nil) with key 'y'", `
local ok, e = xpcall(error, function() error("twice", 0) end)
return tostring(ok) .. e`: "falsetwice", `
return table.concat({ select("#", pcall(function() return nil, nil end)), select("#", pcall(function() end)) }, ",")`: "3,1", `
local function f(n) if n == 0 then error("deep", 0) end return pcall(f, n - 1) end
return table.concat({ tostring(select("#", f(3))), tostring((select(2, f(2)))) }, ",")`: "4,false",
	} {
		if got, err := evaluate(t, s, body); err != nil || got != want {
			t.Errorf("%s\n got %q, %v\nwant %q", body, got, err, want)
		}
	}
}

// fila.signal reads what the view says, and takes subjects and names as text like other functions.
func TestASignalIsANumber(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	for body, want := range map[string]string{
		`return fila.signal("acme", "failed")`:                                             "0.5",
		`return fila.signal("acme", "failed", nil)`:                                        "0.5",
		`return fila.signal("acme", "failed", "1m") * 2`:                                   "1",
		`return fila.signal(7, "failed", "all")`:                                           "9",
		`return fila.signal("acme", "failed", "5m")`:                                       "0",
		`return fila.signal("bolt", "failed")`:                                             "0",
		`return fila.signal("", "")`:                                                       "0",
		`return fila.signal(("x"):rep(100000), "failed")`:                                  "0",
		`return select(2, pcall(fila.signal, "acme", "failed", "2m"))`:                     `bad argument #3 to 'signal' (no window "2m", there are 1m 5m all)`,
		`return select(2, pcall(fila.signal, "acme"))`:                                     "bad argument #2 to main chunk (string expected, got nil)",
		`return select(2, pcall(fila.signal, {}, "failed"))`:                               "bad argument #1 to main chunk (string expected, got table)",
		`return select(2, pcall(fila.signal, "acme", "failed", {}))`:                       "bad argument #3 to main chunk (string expected, got table)",
		`local n = 0 for i = 1, 100 do n = n + fila.signal("acme", "failed") end return n`: "50",
	} {
		got, err := evaluate(t, s, body)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v, want %q", body, got, err, want)
		}
	}
	// There is no view while a script is loaded.
	if _, err := s.Load(hook.Caller{}, hook.OnEnqueue, `local n = fila.signal("acme", "failed", "2m") assert(n == 0) function on_enqueue() end`); err != nil {
		t.Error(err)
	}
}
