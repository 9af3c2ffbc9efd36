package scripting

import (
	"runtime"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// What a script allocates is charged at least once: the heap's own counter does
// not run ahead of ours. Each body does one thing many times.
func TestChargesCoverWhatIsAllocated(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	for name, body := range map[string]string{
		"empty tables":      `for i = 1, 2000 do local t = {} end`,
		"lists":             `for i = 1, 500 do local t = { i, i, i, i, i } end`,
		"long lists":        `for i = 1, 20 do local t = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22 } end`,
		"records":           `for i = 1, 300 do local t = { a = i, b = i, c = i } end`,
		"long records":      `for i = 1, 100 do local t = { a = i, b = i, c = i, d = 1, e = 1, f = 1, g = 1, h = 1, i = 1, j = 1, k = 1, l = 1, m = 1, n = 1, o = 1, p = 1, q = 1, r = 1 } end`,
		"computed fields":   `for i = 1, 100 do local t = { [i] = 1, ["x" .. i] = 2, [0.5] = 3 } end`,
		"appends":           `local t = {} for i = 1, 10000 do t[i] = i end`,
		"inserts":           `local t = {} for i = 1, 5000 do table.insert(t, i) end`,
		"short appends":     `for i = 1, 500 do local t = {} t[1] = i end`,
		"gaps":              `for i = 1, 100 do local t = {} t[100] = i end`,
		"fields":            `local t = {} for i = 1, 1500 do t["k" .. i] = i end`,
		"numbers as fields": `local t = {} for i = 1, 1500 do t[-i] = i end`,
		"first fields":      `for i = 1, 300 do local t = {} t.x = i end`,
		"closures":          `local f for i = 1, 1000 do f = function() return i, f end end`,
		"strings":           `for i = 1, 3000 do local s = "abc" .. i end`,
		"long strings":      `local x = ("x"):rep(10000) for i = 1, 60 do local s = x .. i end`,
		"varargs":           `local function f(...) return { ... } end for i = 1, 500 do f(1, 2, 3, 4) end`,
		"subs":              `local x = ("x"):rep(100) for i = 1, 5000 do local s = x:sub(2, 50) end`,
		"case":              `local x = ("x"):rep(100) for i = 1, 1500 do local s = x:upper() end`,
		"format":            `for i = 1, 1500 do local s = string.format("%d %s", i, "abc") end`,
		"gsub":              `for i = 1, 300 do local s = ("hello world"):gsub("o", "0") end`,
		"gmatch":            `for i = 1, 200 do for w in ("one two three"):gmatch("%a+") do end end`,
		"find":              `for i = 1, 2000 do local a, b = ("key=value"):find("(%a+)=(%a+)") end`,
		"concat":            `local t = { "a", "b", "c" } for i = 1, 1500 do local s = table.concat(t, ",") end`,
		"sort":              `local t = { 3, 1, 2, 9, 8, 7 } for i = 1, 500 do table.sort(t) end`,
		"signals":           `for i = 1, 2000 do local v = fila.signal("acme", "failed", "1m") end`,
		"split":             `for i = 1, 300 do local t = fila.split("a,b,c,d", ",") end`,
		"headers":           `for i = 1, 2000 do local s = msg.headers.tenant end`,
		"pairs":             `for i = 1, 500 do for k, v in pairs(msg.headers) do end end`,
		"message":           `for i = 1, 500 do local q, t, k = msg.queue, msg.throttle_keys, msg.fairness_key end`,
		"errors":            `for i = 1, 300 do pcall(error, "x") end`,
		"tostring":          `for i = 1, 5000 do local s = tostring(i + 0.5) end`,
		"tables of tables":  `local t = {} for i = 1, 200 do t[i] = { { i }, { x = i } } end`,
		"globals":           `for i = 1, 300 do _G["g" .. i] = i end`,
		"metatables":        `local mt = { __index = function(t, k) return k end } for i = 1, 1000 do local x = setmetatable({}, mt).y end`,
	} {
		t.Run(name, func(t *testing.T) {
			h := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) "+body+" end")
			h.Try(benchMessage(), benchView(), hook.Bounds{}) // so that a machine and its threads are there
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			trial := h.Try(benchMessage(), benchView(), hook.Bounds{})
			runtime.ReadMemStats(&after)
			if trial.Err != nil {
				t.Fatal(trial.Err)
			}
			// Beside what is counted: numbers of 8 bytes, two an instruction, and what
			// the call itself takes.
			got := allocated(&before, &after) - 16*trial.Instructions
			t.Logf("%d charged, %d allocated in %d instructions", trial.Memory, allocated(&before, &after), trial.Instructions)
			if got > trial.Memory+4096 {
				t.Errorf("%d bytes charged, %d allocated", trial.Memory, got)
			}
		})
	}
}
