package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/bench"
)

// found returns results of two systems, one of which is not Fila and has a name that requires
// quoting. The median of the ratios is not the ratio of the medians.
func found() *results {
	r := newResults(&options{rounds: 3, time: time.Second}, []string{"beanstalkd is not installed"})
	fila := &running{system: &system{ID: "fila", Name: "Fila", Synced: true}, Version: "1"}
	other := &running{system: &system{ID: "other", Name: "A <b> & c", Settings: "-f0"}, Version: "2"}
	c := testCase{
		Name: "cycle-64x16", What: "cycles", Workload: bench.Cycle, systems: []string{"fila", "other"},
		goals: []goal{
			{Figure: figureRate, Of: "fila", Peer: "other", Least: 4.5},
			{Figure: figureP99, Of: "fila", Peer: "other", Most: 1},
			{Figure: figureCPU, Of: "fila", Peer: "other", Most: 1.1},
			{Figure: figureMemory, Of: "other"},
			{Figure: figureRate, Of: "fila", Peer: "absent", Least: 1},
		},
	}
	taken := r.add(&c)
	round := func(rate float64) bench.Round {
		return bench.Round{Rate: rate, Latency: map[string]bench.Latency{"cycle": {P50: 1, P99: 2}}, Peak: 7 << 20}
	}
	for _, rate := range []float64{100, 300, 200} {
		taken["fila"] = append(taken["fila"], round(rate))
	}
	for _, rate := range []float64{25, 150, 20} {
		taken["other"] = append(taken["other"], round(rate))
	}
	r.sum(&c, []*running{fila, other}, taken)
	return r
}

func TestARatioIsTheMedianOfThoseOfTheRounds(t *testing.T) {
	r := found()
	if o := r.Cases[0].Systems[1]; o.Rate != 25 || o.Ratio != 4 || len(o.Rates) != 3 {
		t.Errorf("got %+v", o)
	}
	var b strings.Builder
	r.writeTable(&b)
	for _, want := range []string{"| Fila 1 |", "| 4.00 × |", "Not measured: beanstalkd"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestWhatIsWrittenCanBeRead(t *testing.T) {
	dir := t.TempDir()
	if err := found().write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "peers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Cases []struct {
			Name    string
			Systems []struct {
				ID    string
				Ratio float64
			}
		}
	}
	if err := json.Unmarshal(text, &back); err != nil || back.Cases[0].Name != "cycle-64x16" || back.Cases[0].Systems[1].Ratio != 4 {
		t.Errorf("read back %+v, %v", back, err)
	}
	plot, err := os.Open(filepath.Join(dir, "cycle-64x16.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer plot.Close()
	for d := xml.NewDecoder(plot); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "peers.md"))
	if err != nil || !strings.Contains(string(page), "](cycle-64x16.svg)") {
		t.Errorf("%v\n%s", err, page)
	}
}

func TestWhatIsNotInstalledIsNamed(t *testing.T) {
	_, err := need("no-such-broker", "apt-get install no-such-broker")
	if !isMissing(err) || !strings.Contains(err.Error(), "apt-get install no-such-broker") {
		t.Errorf("got %v", err)
	}
}

// The children of a server that is a script end with it.
func TestAProcessEndsWithAllThatItStarted(t *testing.T) {
	p, err := startProcess(t.Context(), t.TempDir(), nil, func() error { return nil }, "sh", "-c", "sleep 600 & sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p.stop()
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	if p.cmd.ProcessState == nil {
		t.Error("it runs on")
	}
}
