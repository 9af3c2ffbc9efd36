package scripting

import (
	"errors"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

func TestResultsAreTakenAsTheyAre(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	ms := func(n int) *time.Duration { d := time.Duration(n) * time.Millisecond; return &d }
	nine, zero := uint8(9), uint8(0)
	for result, want := range map[string]hook.EnqueueDecision{
		`nil`:                                        {},
		`{}`:                                         {},
		`{ fairness_key = "a\0b" }`:                  {Key: "a\x00b"},
		`{ fairness_key = ("k"):rep(512) }`:          {Key: strings.Repeat("k", 512)},
		`{ weight = 1 }`:                             {Weight: 1},
		`{ weight = 1000000, cost = 1000000 }`:       {Weight: 1_000_000, Cost: 1_000_000},
		`{ priority = 0 }`:                           {Priority: &zero},
		`{ priority = 9, delay_ms = 0 }`:             {Priority: &nine, Delay: ms(0)},
		`{ delay_ms = 1500.7 }`:                      {Delay: ms(1500)},
		`{ throttle_keys = {} }`:                     {Throttles: []string{}},
		`{ throttle_keys = { "a", "b" } }`:           {Throttles: []string{"a", "b"}},
		`{ throttle_keys = fila.split("1,2", ",") }`: {Throttles: []string{"1", "2"}},
		`{ budgets = {}, charge = 0 }`:               {Budgets: []string{}, Charge: new(int64(0))},
		`{ budgets = { "a", "b", "c", "a", "d" } }`:  {Budgets: []string{"a", "b", "c", "d"}},
		`{ budgets = { ("b"):rep(512) } }`:           {Budgets: []string{strings.Repeat("b", 512)}},
		`{ charge = 1e12 }`:                          {Charge: new(int64(1e12))},
		`{ max_attempts = 0, backoff_ms = 0 }`:       {Retry: queueset.Retries{MaxAttempts: 1, Backoff: 1}},
		`{ max_backoff_ms = 5, backoff_ms = 5 }`:     {Retry: queueset.Retries{Backoff: queueset.Some(5), MaxBackoff: queueset.Some(5)}},
		`{ max_backoff_ms = 3153600000000 }`:         {Retry: queueset.Retries{MaxBackoff: queueset.Some(3153600000000)}},
	} {
		h := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) return "+result+" end")
		got, err := h.OnEnqueue(time.Now(), benchMessage(), nil, hook.Bounds{})
		if err != nil || !same(&got, &want) {
			t.Errorf("%s: %+v, %v", result, got, err)
		}
	}
}

func same(a, b *hook.EnqueueDecision) bool {
	return a.Key == b.Key && a.Weight == b.Weight && a.Cost == b.Cost &&
		(a.Throttles == nil) == (b.Throttles == nil) && strings.Join(a.Throttles, "|") == strings.Join(b.Throttles, "|") &&
		(a.Budgets == nil) == (b.Budgets == nil) && strings.Join(a.Budgets, "|") == strings.Join(b.Budgets, "|") &&
		equal(a.Charge, b.Charge) && a.Retry == b.Retry && equal(a.Priority, b.Priority) && equal(a.Delay, b.Delay)
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func TestWrongResultsAreErrorsThatSayWhy(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	for result, want := range map[string]string{
		`1`:                                 "must return a table or nil, not a number",
		`"acme"`:                            "not a string",
		`msg`:                               "not a userdata",
		`true`:                              "not a boolean",
		`{ "acme" }`:                        "a key of type number",
		`{ fairness_key = 7 }`:              "'fairness_key' must be a string, not a number",
		`{ fairness_key = "" }`:             "'fairness_key' must not be empty",
		`{ fairness_key = ("k"):rep(513) }`: "'fairness_key' has 513 bytes, at most 512",
		`{ fairnes_key = "a" }`:             "unknown result field 'fairnes_key'",
		`{ weight = 0 }`:                    "'weight' is 0, it must be between 1 and 1000000",
		`{ weight = -1 }`:                   "'weight' is -1",
		`{ weight = 1000001 }`:              "'weight' is 1000001",
		`{ weight = 1.5 }`:                  "'weight' must be a whole number",
		`{ weight = 0 / 0 }`:                "'weight' must be a whole number",
		`{ weight = 1 / 0 }`:                "'weight' must be a whole number",
		`{ weight = "3" }`:                  "'weight' must be a number, not a string",
		`{ cost = 0 }`:                      "'cost' is 0",
		`{ cost = 2 ^ 40 }`:                 "'cost' is 1099511627776",
		`{ priority = 10 }`:                 "'priority' is 10, it must be between 0 and 9",
		`{ priority = -1 }`:                 "'priority' is -1",
		`{ delay_ms = -1 }`:                 "'delay_ms' must be between",
		`{ delay_ms = 0 / 0 }`:              "'delay_ms' must be between",
		`{ delay_ms = 1 / 0 }`:              "'delay_ms' must be between",
		`{ delay_ms = 3153600000001 }`:      "'delay_ms' must be between",
		`{ delay_ms = "5" }`:                "'delay_ms' must be a number of milliseconds, not a string",
		`{ budgets = "a" }`:                 "'budgets' must be a list, not a string",
		`{ budgets = { "" } }`:              "'budgets' [1] must not be empty",
		`{ budgets = { ("b"):rep(513) } }`:  "'budgets' [1] has 513 bytes, at most 512",
		`{ budgets = { "a", "b", "c", "d", "e" } }`: "'budgets' has 5 budgets, at most 4",
		`{ charge = "3" }`:                          "'charge' must be a number, not a string",
		`{ charge = 0.5 }`:                          "'charge' must be a whole number",
		`{ charge = -1 }`:                           "'charge' is -1, it must be between 0 and 1000000000000",
		`{ charge = 1e12 + 1 }`:                     "'charge' is 1000000000001, it must be between 0 and 1000000000000",
		`{ charge = 1 / 0 }`:                        "'charge' must be a whole number",
		`{ max_attempts = 4294967296 }`:             "'max_attempts' is 4294967296, it must be between 0 and 4294967295",
		`{ backoff_ms = -1 }`:                       "'backoff_ms' is -1, it must be between 0 and 3153600000000",
		`{ max_backoff_ms = 10, backoff_ms = 11 }`:  "'max_backoff_ms' is 10, it must not be below backoff_ms, 11",
		`{ max_backoff_ms = "1" }`:                  "'max_backoff_ms' must be a number, not a string",
		`{ throttle_keys = "a" }`:                   "'throttle_keys' must be a list, not a string",
		`{ throttle_keys = { "a", 7 } }`:            "'throttle_keys' [2] must be a string",
		`{ throttle_keys = { "a", nil, "c" } }`:     "'throttle_keys' [2] must be a string, not a nil",
		`{ throttle_keys = { "" } }`:                "'throttle_keys' [1] must not be empty",
		`{ throttle_keys = { ("k"):rep(513) } }`:    "[1] has 513 bytes",
		`{ throttle_keys = { a = "b" } }`:           "not in its sequence",
		`{ throttle_keys = { "a", x = "b" } }`:      "not in its sequence",
		`{ throttle_keys = { "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17" } }`: "has 17 keys, at most 16",
	} {
		h := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) return "+result+" end")
		got, err := h.OnEnqueue(time.Now(), benchMessage(), nil, hook.Bounds{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", result, err, want)
			continue
		}
		fit(t, err)
		if safe := hook.SafeEnqueue(); !same(&got, &safe) {
			t.Errorf("%s: decided %+v", result, got)
		}
	}
}

func TestFailureResults(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	msg := benchMessage()
	msg.ID, msg.Attempts, msg.Error = "0190c0de", 3, "timeout"
	msg.Throttles = []string{"provider:x"}
	for result, want := range map[string]struct {
		action hook.FailureAction
		delay  time.Duration // -1: none
		err    string
	}{
		`{ hold = { [msg.throttle_keys[1]] = 5.5 } }`: {hook.FailureDefault, -1, ""},
		`{ hold = {}, delay_ms = 5 }`:                 {hook.FailureDefault, 5 * time.Millisecond, ""},
		`{ hold = { other = 5 } }`:                    {hook.FailureDefault, -1, `'hold' has "other", a throttle key that the message does not name`},
		`{ hold = { 5 } }`:                            {hook.FailureDefault, -1, `'hold' has "1", a throttle key`},
		`{ hold = { [msg.throttle_keys[1]] = -1 } }`:  {hook.FailureDefault, -1, `must be between 0`},
		`{ hold = { [msg.throttle_keys[1]] = "1" } }`: {hook.FailureDefault, -1, `must be a number of milliseconds`},
		`{ hold = 5 }`:                                {hook.FailureDefault, -1, `'hold' must be a table`},
		`nil`:                                         {hook.FailureDefault, -1, ""},
		`{}`:                                          {hook.FailureDefault, -1, ""},
		`{ action = "retry" }`:                        {hook.FailureRetry, -1, ""},
		`{ action = "dlq" }`:                          {hook.FailureDead, -1, ""},
		`{ action = "retry", delay_ms = fila.backoff(msg.attempts, 100, 1000) }`: {hook.FailureRetry, 400 * time.Millisecond, ""},
		`{ delay_ms = 5 }`:                      {hook.FailureDefault, 5 * time.Millisecond, ""},
		`{ action = msg.error .. msg.id .. 1 }`: {hook.FailureDefault, -1, `'action' must be "retry" or "dlq"`},
		`{ action = true }`:                     {hook.FailureDefault, -1, "'action' must be"},
		`{ action = "retry", delay_ms = -5 }`:   {hook.FailureDefault, -1, "'delay_ms' must be between"},
		`{ fairness_key = "a" }`:                {hook.FailureDefault, -1, "unknown result field"},
		`"dlq"`:                                 {hook.FailureDefault, -1, "must return a table"},
	} {
		h := load(t, s, hook.OnFailure, "function on_failure(msg) return "+result+" end")
		got, err := h.OnFailure(time.Now(), msg, nil, hook.Bounds{})
		if (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: %v, want %q", result, err, want.err)
		}
		if got.Action != want.action || (got.Delay == nil) != (want.delay < 0) || got.Delay != nil && *got.Delay != want.delay {
			t.Errorf("%s: %+v", result, got)
		}
	}
}

func TestSourcesAreRefusedWithTheirLine(t *testing.T) {
	s := sandbox(t)
	for source, want := range map[string]struct {
		line int
		text string
	}{
		"":                                       {0, "defines no function on_enqueue"},
		"x = 1":                                  {0, "defines no function on_enqueue"},
		"on_enqueue = 7":                         {0, "defines no function on_enqueue"},
		"local function on_enqueue() end":        {0, "defines no function on_enqueue"},
		"function on_failure() end":              {0, "defines no function on_enqueue"},
		"\n\nfunction on_enqueue(":               {3, "at the end"},
		"function on_enqueue()\n  retrun x\nend": {2, "near"},
		"function on_enqueue()\n  x = = 1\nend":  {2, "near '='"},
		"\nlocal x = nil\nx.y = 1":               {3, "attempt to index a nil value"},
		"\n\n\nerror('no')":                      {4, "no"},
		"\nerror({})":                            {2, "the error is a table"},
		"x = 'unterminated":                      {1, "unterminated string"},
		"break":                                  {1, "no loop to break"},
		"\ngoto x":                               {2, "goto is not supported"},
		"return 1, , 2":                          {1, "near ','"},
		"\n\nwhile true do end":                  {3, "limit"},
		"x = '\xff\xfe' y = = '\x00'":            {1, "near '='"},
		strings.Repeat("-", 70_000):              {0, "a script of 70000 bytes, at most 65536"},
	} {
		_, err := accept(s, hook.OnEnqueue, source)
		var e *Error
		if !errors.As(err, &e) || e.Line != want.line || !strings.Contains(e.Text, want.text) {
			t.Errorf("%.60q: %v, want line %d and %q", source, err, want.line, want.text)
			continue
		}
		fit(t, err)
	}
}

// What a message has, a script sees; what it does not have is nil.
func TestTheMessageIsSeenAsItIs(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	msg := &hook.Message{
		Queue: "q", PayloadSize: 1234, Key: "k", Meta: storage.Meta{Weight: 7, Throttles: []string{"t1", "t2"}, Budgets: []string{"b1"}, Charge: 1e12, Retries: &queueset.Retries{MaxAttempts: queueset.Some(0), MaxBackoff: queueset.Some(9)}},
		Headers: []storage.Header{
			{Name: []byte("a"), Value: []byte("1")}, {Name: []byte("b\x00"), Value: []byte("\xff\x00")}, {Name: []byte("a"), Value: []byte("2")},
		},
	}
	const fields = `
return table.concat({ msg.queue, msg.payload_size, msg.fairness_key, msg.weight, #msg.throttle_keys, msg.throttle_keys[2],
  #msg.budgets, msg.budgets[1], msg.charge, msg.max_attempts, tostring(msg.backoff_ms), msg.max_backoff_ms, tostring(msg.id), tostring(msg.attempts), tostring(msg.error), tostring(msg.payload), tostring(msg[1]), type(msg) }, "|")`
	const headers = `
local s = msg.headers.a .. msg.headers["b\0"]:byte(1) .. tostring(msg.headers.c) .. tostring(msg.headers[1]) .. #msg.headers .. ";"
for name, value in pairs(msg.headers) do s = s .. #name .. value:sub(1, 1):byte() .. "," end
return s`
	m := s.take()
	for source, want := range map[string]string{
		fields:  "q|1234|k|7|2|t2|1|b1|1000000000000|0|nil|9|nil|nil|nil|nil|nil|userdata",
		headers: "2255nilnil3;149,2255,150,",
	} {
		h := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) "+source+" end")
		within := s.cfg.bounds(hook.Bounds{})
		v, err := m.run(h.script, &within, msg, nil)
		if err != nil || v.value().String() != want {
			t.Errorf("got %v, %v\nwant %s", v, err, want)
		}
	}
	msg.ID, msg.Attempts, msg.Error = "id", 3, ""
	h := load(t, s, hook.OnFailure, `function on_failure(msg) return msg.id .. msg.attempts .. "<" .. msg.error .. ">" end`)
	within := s.cfg.bounds(hook.Bounds{})
	if v, err := m.run(h.script, &within, msg, nil); err != nil || v.value().String() != "id3<>" {
		t.Errorf("%v, %v", v, err)
	}
}

func TestHelpers(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	for body, want := range map[string]string{
		`return fila.get("weight.acme") .. tostring(fila.get("none")) .. fila.get("none", "d")`:                                                                                                             "3nild",
		`return table.concat({ fila.backoff(0, 100, 1000), fila.backoff(1, 100, 1000), fila.backoff(2, 100, 1000), fila.backoff(5, 100, 1000), fila.backoff(1e9, 100, 1000), fila.backoff(3, 0, 5) }, ",")`: "100,100,200,1000,1000,0",
		`return fila.budget("acme") + fila.budget("bolt") .. tostring(fila.budget("none"))`:                                                                                                                 "747nil",
		`return fila.backoff(1e300, 1, math.huge) == math.huge and "huge" or "bounded"`:                                                                                                                     "huge",
		`return table.concat(fila.split("a,b,,c", ","), "|") .. #fila.split("", ",") .. #fila.split("abc", "abc") .. table.concat(fila.split("a::b::c", "::"), "|")`:                                        "a|b||c12a|b|c",
		// These are for ever: scripts that split traffic by them must not change sides.
		`return table.concat({ fila.hash("", 100), fila.hash("a", 100), fila.hash("acme", 100), fila.hash("user-42", 2), fila.hash("acme", 2 ^ 32), fila.hash("x", 1) }, ",")`: "42,15,74,1,1806290886,0",
	} {
		if got, err := evaluate(t, s, body); err != nil || got != want {
			t.Errorf("%s\n got %q, %v\nwant %q", body, got, err, want)
		}
	}
	for _, body := range []string{
		`fila.budget()`, `fila.budget({})`, `fila.budget(nil)`, `fila.get()`, `fila.get({})`, `fila.backoff(1, 2)`, `fila.backoff(-1, 2, 3)`, `fila.backoff(0 / 0, 2, 3)`, `fila.backoff(1, 1 / 0, 3)`,
		`fila.split("a", "")`, `fila.split(nil, ",")`, `fila.hash("a")`, `fila.hash("a", 0)`, `fila.hash("a", 1.5)`, `fila.hash("a", 2 ^ 33)`, `fila.hash({}, 2)`,
	} {
		if got, err := evaluate(t, s, "return "+body); err == nil {
			t.Errorf("%s: %s", body, got)
		}
	}
}

func TestHashesSpreadEvenly(t *testing.T) {
	const buckets, keys = 10, 100_000
	var seen [buckets]int
	for i := range keys {
		seen[hash("user-"+string(appendNumber(nil, lua.LNumber(i))))%buckets]++
	}
	for i, n := range seen {
		if n < keys/buckets*95/100 || n > keys/buckets*105/100 {
			t.Errorf("%d of %d keys fall into bucket %d of %d", n, keys, i, buckets)
		}
	}
}

// Each field has the limit of its own name, also where settings make them differ.
func TestEachFieldHasItsOwnLimit(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Limits.Weight, cfg.Limits.Cost, cfg.Limits.Throttles = 5, 7, 0
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for result, want := range map[string]string{
		`{ weight = 5, cost = 7, throttle_keys = {} }`: "",
		`{ weight = 6 }`:            "between 1 and 5",
		`{ cost = 8 }`:              "between 1 and 7",
		`{ throttle_keys = {"a"} }`: "has 1 keys, at most 0",
	} {
		_, err := load(t, s, hook.OnEnqueue, "function on_enqueue() return "+result+" end").OnEnqueue(time.Now(), &hook.Message{}, nil, hook.Bounds{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", result, err, want)
		}
	}
}
