package commands

import (
	"strings"
	"testing"

	"github.com/faisca/fila/engine"

	"github.com/faisca/fila/internal/hook"
)

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

// The histogram names the bound of each bucket, and of the last one none.
func TestLatencyIsShownByBucket(t *testing.T) {
	var s hook.Stats
	s.Latency[0], s.Latency[3], s.Latency[hook.LatencyBuckets-1] = 1, 2, 3
	list := latencyBuckets(&s)
	if len(list) != 3 || list[0][0].num != 1 || list[1][0].num != 8 || list[1][1].num != 2 || list[2][0].kind != fieldNil || list[2][1].num != 3 {
		t.Errorf("shown as %+v", list)
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
