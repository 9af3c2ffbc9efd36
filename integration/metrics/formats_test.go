package metrics_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/faisca/fila/integration/kit"
)

// python parses an exposition with the parsers of Prometheus' client for Python, which share no code with what
// writes it, and prints the number of samples of each family. That of OpenMetrics is strict.
const python = `
import json, sys
if sys.argv[1] == "openmetrics":
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
else:
    from prometheus_client.parser import text_string_to_metric_families as parse
print(json.dumps({f.name: len(f.samples) for f in parse(sys.stdin.read())}))
`

// parser is Debian's Python. Without the package the test fails in CI and is skipped elsewhere.
func parser(t *testing.T) string {
	t.Helper()
	const interpreter = "/usr/bin/python3"
	err := exec.CommandContext(t.Context(), interpreter, "-c", "import prometheus_client").Run()
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("%v: apt-get install python3-prometheus-client", err)
	}
	return interpreter
}

func TestEachFormatIsReadByAnotherParser(t *testing.T) {
	interpreter := parser(t)
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	busy(t, c)
	families := map[string]map[string]int{}
	for name, args := range map[string][]any{"text": {"FILA.METRICS"}, "openmetrics": {"FILA.METRICS", "OPENMETRICS"}} {
		cmd := exec.CommandContext(t.Context(), interpreter, "-c", python, name)
		cmd.Stdin = strings.NewReader(fmt.Sprint(kit.Do(t, c, args...)))
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, complaint.String())
		}
		var samples map[string]int
		if err := json.Unmarshal(out, &samples); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		families[name] = samples
	}
	families["protobuf"] = fromProtobuf(t, fmt.Sprint(kit.Do(t, c, "FILA.METRICS", "PROTOBUF")))
	for name, samples := range families {
		if len(samples) < 50 {
			t.Errorf("%s has %d families", name, len(samples))
		}
		// Python's parser names the family of a counter without _total, in both formats.
		for _, want := range []string{"fila_queue_messages", "fila_queue_messages_enqueued", "fila_command_duration_seconds"} {
			if samples[want]+samples[want+"_total"] == 0 {
				t.Errorf("%s has no samples of %s", name, want)
			}
		}
	}
}

// fromProtobuf returns the number of metrics of each family.
func fromProtobuf(t *testing.T, text string) map[string]int {
	t.Helper()
	all := map[string]int{}
	d := expfmt.NewDecoder(strings.NewReader(text), expfmt.NewFormat(expfmt.TypeProtoDelim))
	for {
		of := new(dto.MetricFamily)
		if err := d.Decode(of); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if all[of.GetName()] > 0 {
			t.Errorf("protobuf has %s twice", of.GetName())
		}
		all[of.GetName()] = len(of.GetMetric())
	}
}
