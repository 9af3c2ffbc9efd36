package commands

import (
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/telemetry"
)

// redis-cli prints texts as they are: without a newline the prompt follows on their
// last line.
func TestTextsEndWithANewline(t *testing.T) {
	texts := 0
	for _, c := range everyCommand() {
		conn := newServer(t, nil).connect("")
		conn.do("HELLO", "3")
		for _, e := range c.Spec.Examples {
			args, err := splitLine(e.Command())
			if err != nil {
				t.Fatal(err)
			}
			v, _, err := decode(conn.do(args...))
			if err != nil {
				t.Fatal(err)
			}
			if v.kind != '=' || v.text == "txt:" {
				continue
			}
			texts++
			if !strings.HasSuffix(v.text, "\n") {
				t.Errorf("%s: %q", e.Command(), v.text)
			}
		}
	}
	if texts < 5 {
		t.Errorf("%d texts: the test looks for them in the wrong way", texts)
	}
}

func TestWhatLatencyTellsEndsWithANewline(t *testing.T) {
	now := startTime()
	l := telemetry.NewLatency(func() time.Time { return now }, 100*time.Millisecond)
	s := newServer(t, func(c *Config) { c.Latency = l })
	c := s.connect("")
	c.do("HELLO", "3")
	ask := func(args ...string) {
		t.Helper()
		v, _, err := decode(c.do(args...))
		if err != nil {
			t.Fatal(err)
		}
		if v.kind != '=' || !strings.HasSuffix(v.text, "\n") {
			t.Errorf("%q: %q", args, v.text)
		}
	}
	ask("LATENCY", "DOCTOR")
	l.Observe(engine.ActivityCommit, time.Second)
	ask("LATENCY", "DOCTOR")
	ask("LATENCY", "GRAPH", "commit")
	c.do("CONFIG", "SET", "latency-monitor-threshold", "0")
	c.do("LATENCY", "RESET")
	ask("LATENCY", "DOCTOR")
}
