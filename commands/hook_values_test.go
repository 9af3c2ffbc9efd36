package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

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
		"action = 'retry', delay_ms = 1e300", "action = 'dlq', delay_ms = -1", "weight = 1",
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
