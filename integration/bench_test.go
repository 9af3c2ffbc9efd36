package integration_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
)

// Every workload runs against the broker and removes its data.
func TestBenchMeasuresAndCleansUp(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, args := range [][]string{
		{"cycle", "--throttles", "2"},
		{"cycle", "--hook", "testdata/tenants.lua", "--rate", "500"},
		{"cycle", "--backlog", "500", "-d", "16384"},
		{"enqueue", "--backlog", "100"},
		{"wait", "--rate", "50%"},
		{"wait", "--rate", "200"},
		{"wait", "--keys", "0"},
		{"drain", "--backlog", "1000"},
	} {
		var got measured
		for _, lasts := range []string{"200ms", "3s", "30s"} { // the machine may have been busy for as long
			if got = benched(t, b, lasts, args); got.Messages != 0 {
				break
			}
		}
		if got.Messages == 0 || got.Rate <= 0 || len(got.Latency) == 0 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if queues := typed(t, b.Addr(), "FILA.QUEUE LIST"); queues[0] != "(empty array)" {
		t.Errorf("it left queues behind: %s", queues)
	}
}

// measured is the median of the rounds of a bench.
type measured struct {
	Messages int64
	Rate     float64
	Latency  map[string]struct{ Count int64 }
}

// benched runs one round of a workload.
func benched(t *testing.T, b *harness.Broker, lasts string, args []string) measured {
	t.Helper()
	args = append([]string{"bench", "--json", "--addr", b.Addr(), "-c", "4", "-P", "4", "-t", lasts, "--warmup", "10ms", "-r", "1"}, args...)
	cmd := exec.Command(kit.Binary(t), args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, said.String())
	}
	var r struct{ Median measured }
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return r.Median
}
