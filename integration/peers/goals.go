package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/faisca/fila/internal/bench"
)

// figure is what a goal is about.
type figure string

// The figures.
const (
	figureRate   figure = "rate"
	figureCPU    figure = "CPU a message"
	figureP50    figure = "p50"
	figureP99    figure = "p99"
	figureMemory figure = "peak memory, MiB"
)

// of returns the figure of a round, 0 if it is not known.
func (f figure) of(r *bench.Round, latency string) float64 {
	switch f {
	case figureCPU:
		return r.CPU
	case figureP50:
		return r.Latency[latency].P50
	case figureP99:
		return r.Latency[latency].P99
	case figureMemory:
		return float64(r.Peak) / (1 << 20)
	case figureRate:
		return r.Rate
	default:
		return 0
	}
}

// goal is what is promised of one system's figure: as a ratio to that of another one in the same round, or
// as it is if there is no other.
type goal struct {
	Figure figure  `json:"figure"`
	Of     string  `json:"of"`
	Peer   string  `json:"peer,omitempty"`
	Least  float64 `json:"least,omitempty"` // one of both, or neither if the figure is only shown
	Most   float64 `json:"most,omitempty"`
}

// besideRedis are the goals of most cases, where both sync before they reply.
func besideRedis(least float64) []goal {
	return []goal{
		{Figure: figureRate, Of: "fila", Peer: "redis-always", Least: least},
		{Figure: figureCPU, Of: "fila", Peer: "redis-always", Most: 1.1},
	}
}

// besideQueues are the goals beside the other systems, synced and as they are by default.
func besideQueues() []goal {
	var all []goal
	for _, to := range []struct {
		id    string
		least float64
	}{
		{"rabbitmq", 5},
		{"nats-always", 15},
		{"nats-default", 1.5},
		{"beanstalkd-f0", 15},
		{"beanstalkd-default", 1.5},
		{"bullmq-always", 8},
		{"bullmq-everysec", 1.5},
		{"asynq-always", 8},
		{"asynq-everysec", 1.5},
	} {
		all = append(all, goal{Figure: figureRate, Of: "fila", Peer: to.id, Least: to.least})
	}
	return all
}

// besideEverysec are the goals where both sync after they have replied.
func besideEverysec() []goal {
	return []goal{
		{Figure: figureRate, Of: "fila-interval", Peer: "redis-everysec", Least: 1},
		{Figure: figureCPU, Of: "fila-interval", Peer: "redis-everysec", Most: 1.2},
	}
}

// waitingBesideRedis are the goals at a rate that both keep up with.
func waitingBesideRedis() []goal {
	return []goal{
		{Figure: figureP50, Of: "fila", Peer: "redis-always", Most: 1},
		{Figure: figureP99, Of: "fila", Peer: "redis-always", Most: 1},
		{Figure: figureCPU, Of: "fila", Peer: "redis-always", Most: 1.1},
	}
}

// storedBesideNone are the goals of a backlog: what Fila keeps of its own rate, and the memory that it
// needs. What Redis keeps of its own is shown to compare.
func storedBesideNone() []goal {
	return []goal{
		{Figure: figureRate, Of: "fila-stored", Peer: "fila", Least: 0.9},
		{Figure: figureMemory, Of: "fila-stored", Most: 512},
		{Figure: figureRate, Of: "redis-stored", Peer: "redis-always"},
		{Figure: figureRate, Of: "fila-stored", Peer: "redis-stored"},
		{Figure: figureMemory, Of: "redis-stored"},
	}
}

// verdict is what was seen of a goal: the median of the rounds, and the least and the most of them. All are
// 0 if the figure is not known, such as the latency of a system that has not completed a batch.
type verdict struct {
	goal
	Known bool    `json:"known"`
	Seen  float64 `json:"seen"`
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Kept  *bool   `json:"kept,omitempty"` // nil if nothing is promised, or the figure is not known
}

// judge compares a goal with the rounds of its systems. It is false if one of them was not measured.
func (g *goal) judge(latency string, taken map[string][]bench.Round) (verdict, bool) {
	if len(taken[g.Of]) == 0 || g.Peer != "" && len(taken[g.Peer]) == 0 {
		return verdict{}, false
	}
	values := figures(g.Figure, latency, taken[g.Of])
	if g.Peer != "" {
		values = ratios(values, figures(g.Figure, latency, taken[g.Peer]))
	}
	// Of all figures, only a rate can be 0.
	if len(values) == 0 || slices.Max(values) == 0 && g.Figure != figureRate {
		return verdict{goal: *g}, true
	}
	v := verdict{goal: *g, Known: true, Seen: bench.Median(values), From: slices.Min(values), To: slices.Max(values)}
	if g.Least > 0 || g.Most > 0 {
		kept := v.Seen >= g.Least && (g.Most == 0 || v.Seen <= g.Most)
		v.Kept = &kept
	}
	return v, true
}

// figures returns one figure of all rounds.
func figures(f figure, latency string, rounds []bench.Round) []float64 {
	var all []float64
	for i := range rounds {
		all = append(all, f.of(&rounds[i], latency))
	}
	return all
}

// ratios divides figures by those of the same round, which were taken right before or after them. Both
// vary together with the machine's speed, so that ratios vary less than their parts.
func ratios(of, peer []float64) []float64 {
	var all []float64
	for i := range min(len(of), len(peer)) {
		if peer[i] > 0 {
			all = append(all, of[i]/peer[i])
		}
	}
	return all
}

// unit follows a figure of the goal.
func (g *goal) unit() string {
	if g.Peer == "" {
		return ""
	}
	return " ×"
}

// promised describes the goal.
func (g *goal) promised() string {
	switch {
	case g.Least > 0:
		return "≥ " + g.number(g.Least) + g.unit()
	case g.Most > 0:
		return "≤ " + g.number(g.Most) + g.unit()
	}
	return ""
}

func (g *goal) number(x float64) string {
	if g.Peer == "" {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func (v *verdict) kept() string {
	switch {
	case v.Kept == nil:
		return ""
	case *v.Kept:
		return "yes"
	}
	return "**no**"
}

// seen describes what was seen.
func (v *verdict) seen() string {
	if !v.Known {
		return "not known | "
	}
	return v.number(v.Seen) + v.unit() + " | " + v.number(v.From) + ", " + v.number(v.To)
}

// writeSummary writes what was promised, what was seen and whether it was kept, one row for each goal.
func (r *results) writeSummary(w io.Writer) {
	rows, promised, kept := 0, 0, 0
	for _, c := range r.Cases {
		for i := range c.Summary {
			v := &c.Summary[i]
			if rows++; rows == 1 {
				fmt.Fprintf(w, "\n### Promised, seen and kept\n\nSeen is the median of the rounds, and beside another system that of the ratios in the same round.\n\n"+
					"| case | what | of | beside | promised | seen | from, to | kept |\n|---|---|---|---|---|---|---|---|\n")
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", c.Name, v.Figure, v.Of, v.Peer, v.promised(), v.seen(), v.kept())
			if v.Least > 0 || v.Most > 0 {
				promised++
			}
			if v.Kept != nil && *v.Kept {
				kept++
			}
		}
	}
	if promised > 0 {
		fmt.Fprintf(w, "\nKept: %d of %d.\n", kept, promised)
	}
}
