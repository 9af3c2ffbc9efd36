package main

import (
	"strings"
	"testing"

	"github.com/faisca/fila/internal/bench"
)

func TestTheSummarySaysWhatWasPromisedSeenAndKept(t *testing.T) {
	var b strings.Builder
	found().writeSummary(&b)
	for _, want := range []string{
		"| cycle-64x16 | rate | fila | other | ≥ 4.50 × | 4.00 × | 2.00, 10.00 | **no** |\n",
		"| cycle-64x16 | p99 | fila | other | ≤ 1.00 × | 1.00 × | 1.00, 1.00 | yes |\n",
		"| cycle-64x16 | CPU a message | fila | other | ≤ 1.10 × | not known |  |  |\n",
		"| cycle-64x16 | peak memory, MiB | other |  |  | 7 | 7, 7 |  |\n",
		"\nKept: 1 of 3.\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "absent") {
		t.Errorf("it judges a system that was not measured:\n%s", b.String())
	}
}

func TestAGoalIsKeptAtItsBound(t *testing.T) {
	taken := map[string][]bench.Round{"a": {{Rate: 110, CPU: 11}}, "b": {{Rate: 100, CPU: 10}}}
	for _, test := range []struct {
		goal goal
		kept bool
	}{
		{goal{Figure: figureRate, Of: "a", Peer: "b", Least: 1.1}, true},
		{goal{Figure: figureRate, Of: "a", Peer: "b", Least: 1.11}, false},
		{goal{Figure: figureCPU, Of: "a", Peer: "b", Most: 1.1}, true},
		{goal{Figure: figureCPU, Of: "a", Peer: "b", Most: 1.09}, false},
		{goal{Figure: figureRate, Of: "a", Least: 110}, true},
		{goal{Figure: figureRate, Of: "a", Most: 109}, false},
	} {
		v, ok := test.goal.judge("cycle", taken)
		if !ok || v.Kept == nil || *v.Kept != test.kept {
			t.Errorf("%+v: %+v, %t", test.goal, v, ok)
		}
	}
}

// Where the CPU time of a server is not known it is 0, which keeps no promise. A rate of 0 breaks one.
func TestAFigureThatIsNotKnownIsNotJudged(t *testing.T) {
	taken := map[string][]bench.Round{"a": {{Rate: 0}}, "b": {{Rate: 1, CPU: 1}}}
	for _, g := range []goal{
		{Figure: figureCPU, Of: "a", Peer: "b", Most: 1},
		{Figure: figureCPU, Of: "b", Peer: "a", Most: 1},
		{Figure: figureMemory, Of: "a", Most: 512},
		{Figure: figureP50, Of: "a", Peer: "b", Most: 1},
		{Figure: figureRate, Of: "b", Peer: "a", Least: 1},
	} {
		if v, ok := g.judge("deliver", taken); !ok || v.Known || v.Kept != nil {
			t.Errorf("%+v was judged: %+v", g, v)
		}
	}
	g := goal{Figure: figureRate, Of: "a", Peer: "b", Least: 1}
	if v, ok := g.judge("deliver", taken); !ok || v.Kept == nil || *v.Kept {
		t.Errorf("a rate of 0: %+v", v)
	}
}
