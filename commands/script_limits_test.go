package commands

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/scripting"
)

// A queue keeps its limits of scripts; where it has none, those of the configuration hold, which
// may have changed.
func TestTheLimitsOfScriptsSurviveARestart(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "own", "LUAMEMORY", "300000", "BREAKERERRORS", "2")
	s.do(t, "FILA.QUEUE", "CREATE", "plain")
	const source = "function on_enqueue(msg) local t = {} for i = 1, 2000 do t[i] = {} end end"
	for _, q := range []string{"own", "plain"} {
		s.do(t, "FILA.SCRIPT", "LOAD", q, "ON_ENQUEUE", source)
	}
	// fails enqueues until the breaker of a queue's script opens, and returns how often.
	fails := func(queue string) int {
		for n := range 10 {
			if strings.Contains(s.do(t, "FILA.SCRIPT", "STATS", queue), "$4\r\nopen\r\n") {
				return n
			}
			s.do(t, "FILA.ENQUEUE", queue, "x", "HEADER", "n", strconv.Itoa(n))
		}
		return -1
	}
	if own, plain := fails("own"), fails("plain"); own != 2 || plain != -1 {
		t.Errorf("the breakers opened after %d and %d errors, want 2 and none", own, plain)
	}
	scripts, cfg := scripting.DefaultConfig(), engine.DefaultConfig()
	scripts.Timeout, scripts.Memory, scripts.Failures = time.Minute, 400_000, 4 // less than the script takes
	var err error
	if cfg.Scripts, err = scripting.New(scripts); err != nil {
		t.Fatal(err)
	}
	if s.Stepper, err = engine.NewStepper(cfg, s.store, startTime()); err != nil {
		t.Fatal(err)
	}
	wantFields(t, s.do(t, "FILA.QUEUE", "INFO", "own"), map[string]string{
		"lua_timeout_ms": "(integer) 0", "lua_memory_bytes": "(integer) 300000", "breaker_errors": "(integer) 2",
	})
	if own, plain := fails("own"), fails("plain"); own != 2 || plain != 4 {
		t.Errorf("after the restart the breakers opened after %d and %d errors, want 2 and 4", own, plain)
	}
	s.do(t, "FILA.QUEUE", "ALTER", "own", "BREAKERERRORS", "3")
	s.do(t, "FILA.SCRIPT", "LOAD", "own", "ON_ENQUEUE", source)
	if own := fails("own"); own != 3 {
		t.Errorf("altered, the breaker opened after %d errors, want 3", own)
	}
	wantFields(t, s.do(t, "FILA.SCRIPT", "STATS", "own"), map[string]string{"errors": "(integer) 3", "limits": "(integer) 3", "rejected": "(integer) 0"})
}
