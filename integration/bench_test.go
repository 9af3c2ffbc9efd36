package integration_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// Every workload runs against the broker and removes its data.
func TestBenchMeasuresAndCleansUp(t *testing.T) {
	b := serve(t)
	for _, args := range [][]string{
		{"cycle", "--throttles", "2"},
		{"cycle", "--hook", "testdata/tenants.lua", "--rate", "500"},
		{"enqueue", "--backlog", "100"},
		{"wait", "--rate", "50%"},
		{"wait", "--keys", "0"},
		{"drain", "--backlog", "1000"},
	} {
		args = append([]string{"bench", "--json", "--addr", b.Addr(), "-c", "4", "-P", "4", "-t", "200ms", "--warmup", "10ms", "-r", "1"}, args...)
		cmd := exec.Command(binary(t), args...)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, said.String())
		}
		var r struct {
			Median struct {
				Messages int64
				Rate     float64
				Latency  map[string]struct{ Count int64 }
			}
		}
		if err := json.Unmarshal(out, &r); err != nil || r.Median.Messages == 0 || r.Median.Rate <= 0 || len(r.Median.Latency) == 0 {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	if queues := typed(t, b.Addr(), "FILA.QUEUE LIST"); queues[0] != "(empty array)" {
		t.Errorf("it left queues behind: %s", queues)
	}
}
