package commands

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
)

func TestLatencyKeepsTheLongestOfEachSecond(t *testing.T) {
	now := startTime()
	l := NewLatency(func() time.Time { return now }, 100*time.Millisecond)
	c := newServer(t, func(cfg *Config) { cfg.Latency, cfg.Now = l, func() time.Time { return now } }).connect("")
	ask := func(want string, args ...string) {
		t.Helper()
		if got := printed(t, c.do(args...)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", strings.Join(args, " "), got, want)
		}
	}
	ask("(empty array)", "LATENCY", "LATEST")
	ask("(error) ERR No samples available for event 'commit'", "LATENCY", "GRAPH", "commit")
	ask(`"Nothing has taken 100 ms or longer.\n"`, "LATENCY", "DOCTOR")

	l.Observe(engine.ActivityCommit, 99*time.Millisecond) // below
	l.Observe(engine.ActivityCommit, 100*time.Millisecond)
	l.Observe(engine.ActivityCommit, 300*time.Millisecond)
	l.Observe(engine.ActivityCommit, 200*time.Millisecond)
	now = now.Add(time.Second)
	l.Observe(engine.ActivityCommit, 150*time.Millisecond)
	l.Observe(engine.ActivityTurn, 110*time.Millisecond)

	at := func(seconds int64) string { return "(integer) " + strconv.FormatInt(startTime().Unix()+seconds, 10) }
	ask("1) 1) \"commit\"\n   2) "+at(1)+"\n   3) (integer) 150\n   4) (integer) 300\n"+
		"2) 1) \"turn\"\n   2) "+at(1)+"\n   3) (integer) 110\n   4) (integer) 110", "LATENCY", "LATEST")
	ask("1) 1) "+at(0)+"\n   2) (integer) 300\n2) 1) "+at(1)+"\n   2) (integer) 150", "LATENCY", "HISTORY", "commit")
	ask("(empty array)", "LATENCY", "HISTORY", "command")
	if got := c.do("LATENCY", "GRAPH", "commit"); strings.Count(got, "#") != 75 {
		t.Errorf("the bars do not agree with 300 and 150 ms: %s", got)
	}
	if got := c.do("LATENCY", "DOCTOR"); !strings.Contains(got, "commit: 2 seconds") || !strings.Contains(got, "turn: 1 seconds") {
		t.Errorf("the doctor overlooks something: %s", got)
	}
	ask("(integer) 1", "LATENCY", "RESET", "turn", "nosuch")
	ask("(integer) 1", "LATENCY", "RESET")
	ask("OK", "CONFIG", "SET", "latency-monitor-threshold", "0")
	l.Observe(engine.ActivityTurn, time.Hour)
	ask("(empty array)", "LATENCY", "LATEST")
}

func TestLatencyIsBounded(t *testing.T) {
	now := startTime()
	l := NewLatency(func() time.Time { return now }, time.Millisecond)
	for range 2 * latencySamples {
		l.Observe(engine.ActivityTurn, time.Second)
		now = now.Add(time.Second)
	}
	samples, _ := l.history(latencyTurn)
	if len(samples) != latencySamples || samples[len(samples)-1].at != now.Unix()-1 {
		t.Errorf("%d samples, the last of %d", len(samples), samples[len(samples)-1].at)
	}
}

func TestHistogramCountsByPowersOfTwo(t *testing.T) {
	s := newServer(t, nil)
	c := s.connect("")
	ping := s.handler.table.find([]byte("ping"))
	for _, us := range []int64{3, 4, 7, 8, 100} {
		s.handler.metrics.called(1, ping, time.Duration(us)*time.Microsecond, "")
	}
	got := printed(t, c.do("LATENCY", "HISTOGRAM", "ping", "nosuch"))
	want := `1) "ping"
2) 1) "calls"
   2) (integer) 5
   3) "histogram_usec"
   4)  1) (integer) 4
       2) (integer) 1
       3) (integer) 8
       4) (integer) 3
       5) (integer) 16
       6) (integer) 4
       7) (integer) 32
       8) (integer) 4
       9) (integer) 64
      10) (integer) 4
      11) (integer) 128
      12) (integer) 5`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	if got := c.do("INFO", "latencystats"); !strings.Contains(got, "latency_percentiles_usec_ping:p50=8.000,p99=112.000,p99.9=112.000\r\n") {
		t.Errorf("got %s", got)
	}
}
