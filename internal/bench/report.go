package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Report is the result of a load with its parameters.
type Report struct {
	Server    string  `json:"server"` // fila 0.1.0
	Addr      string  `json:"addr"`
	Workload  string  `json:"workload"`
	Conns     int     `json:"connections"`
	Pipeline  int     `json:"pipeline"`
	Payload   int     `json:"payload_bytes"`
	Keys      int     `json:"keys"`
	Throttles int     `json:"throttles"`
	Hook      bool    `json:"hook"`
	Backlog   int64   `json:"backlog"`
	Rounds    []Round `json:"rounds"`
	Median    Round   `json:"median"` // of each figure separately
}

// NewReport summarizes rounds, of which there must be at least one.
func NewReport(server, addr string, o *Options, rounds []Round) Report {
	return Report{
		Server: server, Addr: addr, Workload: string(o.Workload), Conns: o.Conns, Pipeline: o.Pipeline, Payload: o.Shape.Payload,
		Keys: o.Shape.Keys, Throttles: o.Shape.Throttles, Hook: o.Shape.Hook != "", Backlog: o.Backlog,
		Rounds: rounds, Median: medians(rounds),
	}
}

// Median returns the median, for an even number of values the upper one.
func Median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func medians(rounds []Round) Round {
	of := func(get func(*Round) float64) float64 {
		var all []float64
		for i := range rounds {
			all = append(all, get(&rounds[i]))
		}
		return Median(all)
	}
	last := rounds[len(rounds)-1]
	m := Round{
		Messages: int64(of(func(r *Round) float64 { return float64(r.Messages) })),
		Seconds:  of(func(r *Round) float64 { return r.Seconds }),
		Rate:     of(func(r *Round) float64 { return r.Rate }),
		Asked:    last.Asked,
		Unsent:   int64(of(func(r *Round) float64 { return float64(r.Unsent) })),
		CPU:      of(func(r *Round) float64 { return r.CPU }),
		Peak:     last.Peak, // it never decreases
		Pause:    of(func(r *Round) float64 { return r.Pause }),
		Latency:  map[string]Latency{},
	}
	for what, seen := range latencies(rounds) {
		at := func(get func(Latency) float64) float64 {
			var all []float64
			for _, l := range seen {
				all = append(all, get(l))
			}
			return Median(all)
		}
		m.Latency[what] = Latency{
			Count: seen[len(seen)-1].Count,
			Mean:  at(func(l Latency) float64 { return l.Mean }),
			P50:   at(func(l Latency) float64 { return l.P50 }),
			P90:   at(func(l Latency) float64 { return l.P90 }),
			P99:   at(func(l Latency) float64 { return l.P99 }),
			P999:  at(func(l Latency) float64 { return l.P999 }),
			Max:   at(func(l Latency) float64 { return l.Max }),
		}
	}
	return m
}

// latencies returns each kind of latency of the rounds that have it: a slow server may not complete any
// request in a short round.
func latencies(rounds []Round) map[string][]Latency {
	all := map[string][]Latency{}
	for i := range rounds {
		for what, l := range rounds[i].Latency {
			all[what] = append(all[what], l)
		}
	}
	return all
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteTable writes the report as a table.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s: %s\n", r.Server, r.Addr, r.what())
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "round\tmessages\tmessages/s\tCPU/message\tpeak memory\tlongest pause\t")
	for i := range r.Rounds {
		row(t, strconv.Itoa(i+1), &r.Rounds[i])
	}
	if len(r.Rounds) > 1 {
		row(t, "median", &r.Median)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nlatency, ms%s\n", r.clock())
	t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "of\tmean\tp50\tp90\tp99\tp99.9\tmax\t")
	for _, what := range []string{"deliver", "cycle", "enqueue", "lease", "ack"} {
		if l, ok := r.Median.Latency[what]; ok {
			fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t\n", what, l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if m := r.Median; m.Unsent > 0 {
		fmt.Fprintf(&b, "\nthe server did not keep up with %.0f/s: %d messages were due and not sent\n", m.Asked, m.Unsent)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) what() string {
	parts := []string{
		r.Workload, fmt.Sprintf("%d connections × %d", r.Conns, r.Pipeline), fmt.Sprintf("%d bytes", r.Payload), fmt.Sprintf("%d keys", r.Keys),
	}
	if r.Throttles > 0 {
		parts = append(parts, fmt.Sprintf("%d throttles", r.Throttles))
	}
	if r.Hook {
		parts = append(parts, "with a hook")
	}
	if r.Backlog > 0 {
		parts = append(parts, fmt.Sprintf("backlog of %d", r.Backlog))
	}
	return strings.Join(parts, ", ")
}

func (r *Report) clock() string {
	if r.Median.Asked > 0 {
		return fmt.Sprintf(", since a message was due at %.0f/s", r.Median.Asked)
	}
	return ", closed loop"
}

func row(w io.Writer, name string, r *Round) {
	cpu, peak := "-", "-"
	if r.Peak > 0 {
		cpu, peak = fmt.Sprintf("%.2f µs", r.CPU), fmt.Sprintf("%d MiB", r.Peak>>20)
	}
	fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\t%.1f ms\t\n", name, r.Messages, r.Rate, cpu, peak, r.Pause)
}

// Server identifies a server that speaks RESP.
type Server struct {
	Addr     string
	Password string
}

// Connect detects whether the server is a Fila broker or a Redis server, whose streams are used. It
// returns its name and version, and its process if it runs on this machine.
func (s Server) Connect(ctx context.Context) (p Peer, name string, pid int, err error) {
	c := client{addr: s.Addr, password: s.Password}
	facts, err := c.server(ctx)
	if err != nil {
		return nil, "", 0, err
	}
	if n, err := strconv.Atoi(facts["process_id"]); err == nil && local(n, s.Addr) {
		pid = n
	}
	if v, ok := facts["fila_version"]; ok {
		return &fila{client: c}, "fila " + v, pid, nil
	}
	if v, ok := facts["redis_version"]; ok {
		return &streams{c}, "redis " + v + " streams", pid, nil
	}
	return nil, "", 0, errors.New("the server at " + s.Addr + " is neither Fila nor Redis")
}

// local reports whether the process is the server's, which is possible only on this machine.
func local(pid int, addr string) bool {
	if !strings.HasPrefix(addr, "127.") && !strings.HasPrefix(addr, "localhost:") && !strings.HasPrefix(addr, "[::1]:") {
		return false
	}
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil
}
