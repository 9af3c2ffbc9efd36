//go:build !race

package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/hook"
)

// TestScripts plays the sessions in testdata. A line "> COMMAND" is sent and
// what redis-cli would print follows; "b> COMMAND" goes over a connection of its
// own, "b<" shows what has come on it since. Ids are shown, and may be written,
// as <id1>, <id2>, ... in the order of their appearance.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "redis-") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playScript(t, string(text), func(change func(*Config)) scripted { return newServer(t, change) })
			if got == string(text) {
				return
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s answers differently:\n%s", file, firstDifference(string(text), got))
		})
	}
}

// wantFields compares what a map, or the first of an array of maps, shows.
func wantFields(t *testing.T, wire string, want map[string]string) {
	t.Helper()
	v, _, err := decode(wire)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.items) > 0 && len(v.items[0].items) > 0 {
		v = v.items[0]
	}
	for i := 0; i+1 < len(v.items); i += 2 {
		name := v.items[i].text
		if w, asked := want[name]; asked {
			if got := v.items[i+1].show(""); got != w {
				t.Errorf("%s is %s, want %s", name, got, w)
			}
			delete(want, name)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// Three errors in a row open the breaker; while it is open messages go where the
// safe decision sends them and the script is not run; then one call decides.
func TestTheBreakerOpensHoldsAndClosesInSightOfStats(t *testing.T) {
	s := newServer(t, nil)
	do := func(args ...string) string { return s.do(t, args...) }
	do("FILA.QUEUE", "CREATE", "orders")
	do("FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", "function on_enqueue(msg)\n  return { fairness_key = msg.headers[fila.get('by')] }\nend")
	enqueue := func() { do("FILA.ENQUEUE", "orders", "x", "KEY", "mine", "HEADER", "tenant", "acme") }
	stats := func() string { return do("FILA.SCRIPT", "STATS", "orders") }

	do("FILA.CONFIG", "SET", "by", "tenant")
	enqueue()
	wantFields(t, stats(), map[string]string{"state": `"closed"`, "calls": "(integer) 1", "errors": "(integer) 0", "last_error": "(nil)"})
	do("FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", "function on_enqueue(msg)\n  return { fairness_key = fila.get('key') .. '' }\nend")
	for range 5 {
		enqueue()
	}
	wantFields(t, stats(), map[string]string{
		"state": `"open"`, "calls": "(integer) 3", "errors": "(integer) 3", "limits": "(integer) 0", "skipped": "(integer) 2", "row": "(integer) 3",
		"opened": "(integer) 1", "last_line": "(integer) 2", "last_at": "(integer) 1767225600000",
	})
	if got := stats(); !strings.Contains(got, "on_enqueue:2: ") {
		t.Errorf("the last error names no line: %s", got)
	}
	wantFields(t, do("FILA.KEY", "GET", "orders", "default"), map[string]string{"depth": "(integer) 5", "weight": "(integer) 1"})
	wantFields(t, do("FILA.KEY", "GET", "orders", "acme"), map[string]string{"depth": "(integer) 1"})

	do("FILA.CONFIG", "SET", "key", "healed")
	enqueue() // still open
	s.Advance(11e9)
	wantFields(t, stats(), map[string]string{"state": `"trial"`, "skipped": "(integer) 3"})
	enqueue()
	wantFields(t, stats(), map[string]string{"state": `"closed"`, "calls": "(integer) 4", "row": "(integer) 0", "trial_at": "(nil)"})
	wantFields(t, do("FILA.KEY", "GET", "orders", "healed"), map[string]string{"depth": "(integer) 1"})
}

// A bound in whole microseconds is above every duration of its bucket.
func TestLatencyIsShownByBucket(t *testing.T) {
	var s hook.Stats
	for _, d := range []time.Duration{0, 5 * time.Microsecond, 7 * time.Microsecond, time.Minute} {
		s.Latency.Observe(d)
		s.LatencyMax = d
	}
	var got []string
	for _, f := range latencyBuckets(&s) {
		got = append(got, fmt.Sprintf("%s %d, %s %d", f[0].name, f[0].num, f[1].name, f[1].num))
	}
	want := []string{"below_us 1, calls 1", "below_us 8, calls 2", "below_us 64000000, calls 1"}
	if !slices.Equal(got, want) {
		t.Errorf("shown as %q, want %q", got, want)
	}
}

// What comes in one read takes effect in order also where the work is done
// beside the loop: a dry run meets the script that was loaded just before.
func TestATestInTheSameReadMeetsTheScriptBeforeIt(t *testing.T) {
	c := newServer(t, nil).connect("")
	c.do("FILA.QUEUE", "CREATE", "orders")
	c.send(
		[]string{"FILA.CONFIG", "SET", "key", "new"},
		[]string{"FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", "function on_enqueue() return { fairness_key = fila.get('key') } end"},
		[]string{"FILA.SCRIPT", "TEST", "orders", "ON_ENQUEUE"},
	)
	got := c.received()
	_, got, _ = strings.Cut(got, "\r\n")   // OK
	_, got, _ = strings.Cut(got[1:], "\n") // the version, in
	_, got, _ = strings.Cut(got, "\n")     // two lines
	wantFields(t, got, map[string]string{"fairness_key": `"new"`})
}

// So does a rollback, which reads its source from the store: the source may be in a command of
// the same read.
func TestARollbackInTheSameReadMeetsTheScriptBeforeIt(t *testing.T) {
	c := newServer(t, nil).connect("")
	c.do("FILA.QUEUE", "CREATE", "orders")
	c.do("FILA.QUEUE", "CREATE", "others")
	source := "function on_enqueue() return { weight = 3 } end"
	version := strings.Split(c.do("FILA.SCRIPT", "LOAD", "others", "ON_ENQUEUE", source), "\r\n")[1]
	c.send(
		[]string{"FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", source},
		[]string{"FILA.SCRIPT", "ROLLBACK", "orders", "ON_ENQUEUE", version},
	)
	if got, want := c.received(), strings.Repeat("$40\r\n"+version+"\r\n", 2); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A script that loaded once and does not any more is shown, does no harm and can
// be replaced or removed.
func TestAScriptThatDoesNotLoadAnyMoreIsShown(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	s.do(t, "FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", "function on_enqueue(msg) return { fairness_key = 'a' } end")
	without := engine.DefaultConfig() // scripts
	var err error
	if s.Stepper, err = engine.NewStepper(without, s.store, startTime()); err != nil {
		t.Fatal(err)
	}
	wantFields(t, s.do(t, "FILA.SCRIPT", "LIST"), map[string]string{"version": "(nil)", "hook": `"on_enqueue"`})
	wantFields(t, s.do(t, "FILA.SCRIPT", "STATS", "orders"), map[string]string{"state": `"open"`, "calls": "(integer) 0", "last_error": `"this broker was built without scripts"`})
	if got := s.do(t, "FILA.SCRIPT", "TEST", "orders", "ON_ENQUEUE"); got != "-LUA this broker was built without scripts\r\n" {
		t.Errorf("TEST answers %q", got)
	}
	if got := s.do(t, "FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", "return"); got != "-ERR this broker was built without scripts\r\n" {
		t.Errorf("LOAD answers %q", got)
	}
	if got := s.do(t, "FILA.ENQUEUE", "orders", "x"); got[0] != '$' {
		t.Errorf("an enqueue answers %q", got)
	}
	if got := s.do(t, "FILA.SCRIPT", "DEL", "orders", "ON_ENQUEUE"); got != ":1\r\n" {
		t.Errorf("DEL answers %q", got)
	}
}

func TestAPageOfTheConfigurationIsBoundByItsBytes(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Limits.ReplyBytes = 3000 })
	for _, k := range []string{"a", "b", "c", "d"} {
		s.do(t, "FILA.CONFIG", "SET", k, strings.Repeat(k, 1200))
	}
	s.do(t, "FILA.CONFIG", "SET", "c", strings.Repeat("c", 4000)) // alone too large: it has a page for itself
	cursor, pages := "0", ""
	for pages == "" || cursor != "0" {
		v, _, err := decode(s.do(t, "FILA.CONFIG", "LIST", "CURSOR", cursor))
		if err != nil || v.kind != '*' {
			t.Fatalf("%v, %v", v, err)
		}
		cursor = v.items[0].text
		for i := 0; i < len(v.items[1].items); i += 2 {
			pages += v.items[1].items[i].text
		}
		pages += "|"
	}
	if pages != "ab|c|d|" {
		t.Errorf("pages %s", pages)
	}
}

// impossible are results of on_enqueue that cannot be kept, each with what its error
// names. A message has a time to live of 60,000 ms.
func impossible() map[string]string {
	return map[string]string{
		"delay_ms = 60000":                 "delay_ms",
		"delay_ms = 3600000":               "delay_ms",
		"delay_ms = 3153600000000":         "delay_ms",
		"delay_ms = -1":                    "delay_ms",
		"delay_ms = 0/0":                   "delay_ms",
		"delay_ms = math.huge":             "delay_ms",
		"delay_ms = -math.huge":            "delay_ms",
		"delay_ms = 1e300":                 "delay_ms",
		"delay_ms = 2^63":                  "delay_ms",
		"delay_ms = '5'":                   "delay_ms",
		"weight = 0":                       "weight",
		"weight = -1":                      "weight",
		"weight = 1000001":                 "weight",
		"weight = 2^32 + 1":                "weight",
		"weight = 2^64":                    "weight",
		"weight = 0/0":                     "weight",
		"weight = math.huge":               "weight",
		"weight = 1.5":                     "weight",
		"cost = 0":                         "cost",
		"cost = 1000001":                   "cost",
		"cost = 2^32 + 1":                  "cost",
		"cost = 0/0":                       "cost",
		"priority = -1":                    "priority",
		"priority = 10":                    "priority",
		"priority = 260":                   "priority",
		"priority = 0/0":                   "priority",
		"fairness_key = ''":                "fairness_key",
		"fairness_key = ('k'):rep(513)":    "fairness_key",
		"fairness_key = {}":                "fairness_key",
		"throttle_keys = {''}":             "throttle_keys",
		"throttle_keys = {('k'):rep(513)}": "throttle_keys",
		"throttle_keys = {1, 2}":           "throttle_keys",
		"throttle_keys = 'a'":              "throttle_keys",
		"throttle_keys = {[2] = 'a'}":      "throttle_keys",
		"throttle_keys = {'1','2','3','4','5','6','7','8','9','10','11','12','13','14','15','16','17'}": "throttle_keys",
	}
}

// ways are the commands that ask on_enqueue, each with how it stores one message in
// the queue, and whether that went well.
func ways(t *testing.T) map[string]func(s *server) bool {
	t.Helper()
	return map[string]func(s *server) bool{
		"ENQUEUE": func(s *server) bool {
			return s.do(t, "FILA.ENQUEUE", "orders", "x", "TTL", "60000")[0] == '$'
		},
		"the TTL of the queue": func(s *server) bool {
			s.do(t, "FILA.QUEUE", "ALTER", "orders", "TTL", "60000")
			return s.do(t, "FILA.ENQUEUE", "orders", "x")[0] == '$'
		},
		"EXEC": func(s *server) bool {
			s.do(t, "MULTI")
			s.do(t, "FILA.ENQUEUE", "orders", "x", "TTL", "60000")
			return strings.HasPrefix(s.do(t, "EXEC"), "*1\r\n$")
		},
		"a tick": func(s *server) bool {
			s.do(t, "FILA.CRON", "SET", "c", "orders", "@every 1s", "x", "TTL", "60000")
			s.Advance(1100 * time.Millisecond)
			defer s.do(t, "FILA.CRON", "DEL", "c")
			return strings.Contains(s.do(t, "FILA.CRON", "GET", "c"), "$5\r\nfired\r\n:1\r\n$6\r\nmissed\r\n:0\r\n")
		},
	}
}

// Whatever an on_enqueue hook returns, the message is stored and can be leased at
// once, and the error is counted under the name of the hook.
func TestNoDecisionOfAHookFailsWhatStoresAMessage(t *testing.T) {
	for way, store := range ways(t) {
		for decision, field := range impossible() {
			s := newServer(t, nil)
			s.do(t, "FILA.QUEUE", "CREATE", "orders")
			source := "function on_enqueue(msg) return { " + decision + " } end"
			if got := s.do(t, "FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", source); got[0] != '$' {
				t.Fatalf("%s: %s", decision, got)
			}
			if !store(s) {
				t.Errorf("%s fails when the hook returns %s", way, decision)
				continue
			}
			if got := s.do(t, "FILA.LEASE", "orders"); !strings.HasPrefix(got, "*1\r\n*9\r\n") {
				t.Errorf("%s, the hook returns %s: nothing to lease: %q", way, decision, got)
			}
			stats := s.do(t, "FILA.SCRIPT", "STATS", "orders")
			wantFields(t, stats, map[string]string{"calls": "(integer) 1", "errors": "(integer) 1", "last_at": fmt.Sprint("(integer) ", s.Now().UnixMilli()/1000*1000)})
			if !strings.Contains(stats, "on_enqueue: result field '"+field+"'") {
				t.Errorf("%s, the hook returns %s: the error names neither: %s", way, decision, stats)
			}
		}
	}
}

// A delay that the time to live does not let end is left out, the rest of the decision
// holds; one that ends before is kept to the millisecond, and is no error.
func TestADelayOfAHookEndsBeforeTheTimeToLive(t *testing.T) {
	for _, c := range []struct {
		ms     int
		errors string
		leased string
	}{{999, "(integer) 0", "*0\r\n"}, {1000, "(integer) 1", "*1\r\n"}, {1001, "(integer) 1", "*1\r\n"}} {
		s := newServer(t, nil)
		s.do(t, "FILA.QUEUE", "CREATE", "orders", "TTL", "1000")
		s.do(t, "FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE",
			fmt.Sprintf("function on_enqueue(msg) return { fairness_key = 'tenant', weight = 7, delay_ms = %d } end", c.ms))
		for range 2 { // the second decision is remembered
			if got := s.do(t, "FILA.ENQUEUE", "orders", "x"); got[0] != '$' {
				t.Fatal(got)
			}
		}
		wantFields(t, s.do(t, "FILA.KEY", "GET", "orders", "tenant"), map[string]string{"weight": "(integer) 7"})
		if got := s.do(t, "FILA.LEASE", "orders"); !strings.HasPrefix(got, c.leased) {
			t.Errorf("a delay of %d ms: %q", c.ms, got)
		}
		if c.errors != "(integer) 0" {
			c.errors = "(integer) 2"
		}
		wantFields(t, s.do(t, "FILA.SCRIPT", "STATS", "orders"), map[string]string{"errors": c.errors, "calls": "(integer) 2", "state": `"closed"`})
	}
}

// What the producer has asked for holds again where the delay of the hook does not.
func TestWithoutTheDelayOfTheHookThatOfTheProducerHolds(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "orders", "TTL", "1000")
	s.do(t, "FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", "function on_enqueue(msg) return { delay_ms = 5000 } end")
	s.do(t, "FILA.ENQUEUE", "orders", "x", "DELAY", "300")
	if got := s.do(t, "FILA.LEASE", "orders"); got != "*0\r\n" {
		t.Errorf("before its delay is over: %q", got)
	}
	s.Advance(300 * time.Millisecond)
	if got := s.do(t, "FILA.LEASE", "orders"); !strings.HasPrefix(got, "*1\r\n") {
		t.Errorf("when its delay is over: %q", got)
	}
	if got := s.do(t, "FILA.ENQUEUE", "orders", "x", "DELAY", "1000"); !strings.HasPrefix(got, "-INVALID") {
		t.Errorf("what would be refused without a hook: %q", got)
	}
}

// Whatever an on_failure hook returns, the nack is answered with what the queue would
// do, and the message is not lost.
func TestNoDecisionOfAHookFailsANack(t *testing.T) {
	decisions := []string{
		"action = 'drop'", "action = 1", "action = ''", "delay_ms = -1", "delay_ms = 0/0", "delay_ms = math.huge", "delay_ms = 3153600000001", "delay_ms = '1'",
		"action = 'retry', delay_ms = 1e300", "action = 'dlq', delay_ms = -1", "weight = 1", "cause = 7", "cause = ''", "cause = ('x'):rep(257)",
	}
	for _, decision := range decisions {
		for _, way := range []string{"a nack", "an expired lease", "EXEC"} {
			s := newServer(t, nil)
			s.do(t, "FILA.QUEUE", "CREATE", "orders", "BACKOFF", "0", "MAXBACKOFF", "0")
			s.do(t, "FILA.SCRIPT", "LOAD", "orders", "ON_FAILURE", "function on_failure(msg) return { "+decision+" } end")
			s.do(t, "FILA.ENQUEUE", "orders", "x")
			id := leasedID(t, s.do(t, "FILA.LEASE", "orders", "VISIBILITY", "1000"))
			retried := "*8\r\n$6\r\naction\r\n$5\r\nretry\r\n"
			switch way {
			case "a nack":
				if got := s.do(t, "FILA.NACK", "orders", id); !strings.HasPrefix(got, retried) {
					t.Errorf("on_failure returns %s: the nack answers %q", decision, got)
				}
			case "EXEC":
				s.do(t, "MULTI")
				s.do(t, "FILA.NACK", "orders", id)
				if got := s.do(t, "EXEC"); !strings.HasPrefix(got, "*1\r\n"+retried) {
					t.Errorf("on_failure returns %s: the nack answers %q", decision, got)
				}
			default:
				s.Advance(time.Second)
			}
			if got := s.do(t, "FILA.LEASE", "orders"); !strings.HasPrefix(got, "*1\r\n") {
				t.Errorf("on_failure returns %s at %s: the message is not there: %q", decision, way, got)
			}
			wantFields(t, s.do(t, "FILA.SCRIPT", "STATS", "orders"), map[string]string{"calls": "(integer) 1", "errors": "(integer) 1"})
		}
	}
}

// leasedID returns the id of the first message of a lease.
func leasedID(t *testing.T, wire string) string {
	t.Helper()
	v, _, err := decode(wire)
	if err != nil || len(v.items) == 0 {
		t.Fatalf("nothing leased: %q, %v", wire, err)
	}
	id, _, _ := strings.Cut(v.items[0].items[0].text, ":")
	return id
}

// withFailureHook starts a server with a queue whose on_failure hook sends messages that carry
// the header doomed, or have failed three times, to the dead-letter queue, and retries
// the others after as many seconds as they have failed.
func withFailureHook(t *testing.T) *server {
	t.Helper()
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	source := `function on_failure(msg)
	  if msg.headers["doomed"] or msg.attempts >= 3 or msg.error == "fatal" then return { action = "dlq" } end
	  return { action = "retry", delay_ms = msg.attempts * 1000 }
	end`
	if got := s.do(t, "FILA.SCRIPT", "LOAD", "orders", "ON_FAILURE", source); got[0] != '$' {
		t.Fatal(got)
	}
	return s
}

// calls compares how often the hook was asked.
func calls(t *testing.T, s *server, want string) {
	t.Helper()
	t.Helper()
	wantFields(t, s.do(t, "FILA.SCRIPT", "STATS", "orders"), map[string]string{"calls": "(integer) " + want, "errors": "(integer) 0"})
}

// exec runs commands as one transaction and returns the decoded replies.
func (s *server) exec(t *testing.T, cmds ...string) []reply {
	t.Helper()
	t.Helper()
	s.do(t, "MULTI")
	for _, c := range cmds {
		if got := s.do(t, strings.Fields(c)...); got != "+QUEUED\r\n" {
			t.Fatalf("%s: %q", c, got)
		}
	}
	v, _, err := decode(s.do(t, "EXEC"))
	if err != nil || v.kind != '*' || len(v.items) != len(cmds) {
		t.Fatalf("EXEC answers %v, %v", v, err)
	}
	return v.items
}

// field returns what a map shows under a name.
func (v reply) field(name string) string {
	for i := 0; i+1 < len(v.items); i += 2 {
		if v.items[i].text == name {
			return v.items[i+1].text
		}
	}
	return v.show("")
}

// The receipt of a lease in the same transaction is not known to its client, so the
// message is named by its id.
func TestANackOfALeaseInTheSameTransactionAsksTheHook(t *testing.T) {
	for _, c := range []struct {
		header, text, action string
	}{{"", "", "retry"}, {" HEADER doomed 1", "", "dlq"}, {"", " ERROR fatal", "dlq"}} {
		s := withFailureHook(t)
		id := strings.Split(s.do(t, strings.Fields("FILA.ENQUEUE orders x"+c.header)...), "\r\n")[1]
		r := s.exec(t, "FILA.LEASE orders", "FILA.NACK orders "+id+c.text)
		if got := r[1].field("action"); got != c.action {
			t.Errorf("a message%s, nacked%s: %s, want %s", c.header, c.text, got, c.action)
		}
		calls(t, s, "1")
	}
}

// Each failure in a transaction is one more, of messages that are leased before it begins
// as of those that are leased in it.
func TestSeveralNacksOfAMessageInATransactionAreSeveralFailures(t *testing.T) {
	for _, leased := range []bool{false, true} {
		s := withFailureHook(t)
		id := strings.Split(s.do(t, "FILA.ENQUEUE", "orders", "x"), "\r\n")[1]
		cmds := []string{"FILA.NACK orders " + id + " DELAY 0", "FILA.LEASE orders", "FILA.NACK orders " + id, "FILA.RESCHEDULE orders " + id + " 0",
			"FILA.LEASE orders", "FILA.NACK orders " + id}
		if leased {
			s.do(t, "FILA.LEASE", "orders")
		} else {
			cmds = append([]string{"FILA.LEASE orders"}, cmds...)
		}
		r := s.exec(t, cmds...)
		r = r[len(r)-6:]
		if first, second, third := r[0].field("action"), r[2].field("attempt"), r[5].field("action"); first != "retry" || second != "3" || third != "dlq" {
			t.Errorf("leased before %v: the nacks answer %s, attempt %s, %s", leased, first, second, third)
		}
		calls(t, s, "2")
	}
}

// Nor does it matter where the message is before the transaction: in memory, on disk
// only, or delayed. An explicit nack asks no hook, nor does one of a message that is not leased.
func TestANackInATransactionFindsItsMessageWhereverItIs(t *testing.T) {
	s := withFailureHook(t)
	const many = 600 // more than a window
	var last string
	for range many {
		last = strings.Split(s.do(t, "FILA.ENQUEUE", "orders", "x"), "\r\n")[1]
	}
	s.exec(t, "FILA.LEASE orders COUNT 600", "FILA.NACK orders "+last) // which may or may not be among those that are leased
	calls(t, s, "1")
	s = withFailureHook(t)
	id := strings.Split(s.do(t, "FILA.ENQUEUE", "orders", "x", "DELAY", "60000"), "\r\n")[1]
	r := s.exec(t, "FILA.RESCHEDULE orders "+id+" 0", "FILA.LEASE orders", "FILA.NACK orders "+id)
	if got := r[2].field("ready_at"); got != printMillis(s, time.Second) {
		t.Errorf("a delayed one: ready_at %s", got)
	}
	calls(t, s, "1")
	r = s.exec(t, "FILA.NACK orders "+id, "FILA.NACK orders "+id+" DEAD", "FILA.LEASE orders", "FILA.NACK orders "+id+" DELAY 7")
	for _, i := range []int{0, 1, 3} {
		if !strings.HasPrefix(r[i].text, "LEASELOST") {
			t.Errorf("a message without a lease: %s", r[i].show(""))
		}
	}
	calls(t, s, "1")
}

func printMillis(s *server, after time.Duration) string {
	return strconv.FormatInt(s.Now().Add(after).UnixMilli(), 10)
}
