package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/faisca/fila/internal/bench"
)

// results are the results of a run, as stored in peers.json.
type results struct {
	Machine machine       `json:"machine"`
	Rounds  int           `json:"rounds"`
	Seconds float64       `json:"round_seconds"`
	Backlog int64         `json:"backlog,omitempty"` // of systems that store one
	Absent  []string      `json:"not_installed,omitempty"`
	Cases   []*caseResult `json:"cases"`
}

type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

type caseResult struct {
	testCase
	Systems []outcome `json:"systems"`
	Summary []verdict `json:"summary,omitempty"`
}

// outcome holds the medians of one system in one case.
type outcome struct {
	*system
	Version string    `json:"version"`
	Rate    float64   `json:"rate"`
	Rates   []float64 `json:"rates"`  // by round
	Ratio   float64   `json:"ratio"`  // Fila's rate divided by this one, by round; 0 if the case does not compare them
	CPU     float64   `json:"cpu_us"` // of the server per message
	Peak    int64     `json:"peak_bytes"`
	P50     float64   `json:"p50_ms,omitempty"` // of a batch, if this program is the client
	P99     float64   `json:"p99_ms,omitempty"`
}

func newResults(o *options, absent []string) *results {
	return &results{Machine: thisMachine(), Rounds: o.rounds, Seconds: o.time.Seconds(), Backlog: o.backlog, Absent: absent}
}

func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan() && m.CPU == ""; {
			if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
			}
		}
	}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	return m
}

// add begins a case and returns where its measurements are collected, by system.
func (r *results) add(c *testCase) map[string][]bench.Round {
	r.Cases = append(r.Cases, &caseResult{testCase: *c})
	return map[string][]bench.Round{}
}

// sum computes the outcomes of the latest case.
func (r *results) sum(c *testCase, all []*running, taken map[string][]bench.Round) {
	last := r.Cases[len(r.Cases)-1]
	for _, s := range all {
		rounds := taken[s.system.ID]
		if len(rounds) == 0 {
			continue
		}
		o := outcome{system: s.system, Version: s.Version}
		for i := range rounds {
			o.Rates = append(o.Rates, rounds[i].Rate)
		}
		report := bench.NewReport("", "", &bench.Options{Workload: c.Workload}, rounds)
		m := report.Median
		o.Rate, o.CPU, o.Peak = m.Rate, m.CPU, m.Peak
		if l, ok := m.Latency[c.latency()]; ok {
			o.P50, o.P99 = l.P50, l.P99
		}
		last.Systems = append(last.Systems, o)
	}
	last.compare(taken)
}

// compare computes the ratios of the rates and the verdicts. At a given rate all have the same.
func (c *caseResult) compare(taken map[string][]bench.Round) {
	first := figures(figureRate, "", taken[c.systems[0]])
	for i := range c.Systems {
		o := &c.Systems[i]
		if all := ratios(first, o.Rates); len(all) > 0 && c.Rate == 0 {
			o.Ratio = bench.Median(all)
		}
	}
	for i := range c.goals {
		if v, ok := c.goals[i].judge(c.latency(), taken); ok {
			c.Summary = append(c.Summary, v)
		}
	}
}

// writeTable writes one Markdown table per case.
func (r *results) writeTable(w io.Writer) {
	for _, c := range r.Cases {
		latency := "of a batch"
		if c.Workload == bench.Wait {
			latency = "until delivery"
		}
		fmt.Fprintf(w, "\n### %s: %s\n\n", c.Name, c.What)
		fmt.Fprintf(w, "| system | settings | synced | messages/s | Fila's is | server CPU a message | p50, p99 %s | peak memory |\n|---|---|---|---|---|---|---|---|\n", latency)
		for i := range c.Systems {
			c.row(w, &c.Systems[i])
		}
	}
	for _, a := range r.Absent {
		fmt.Fprintf(w, "\nNot measured: %s\n", a)
	}
}

func (c *caseResult) row(w io.Writer, o *outcome) {
	synced, ratio, latency := "no", "", ""
	if o.Synced {
		synced = "yes"
	}
	if o.ID != c.systems[0] && o.Ratio > 0 {
		ratio = fmt.Sprintf("%.2f ×", o.Ratio)
	}
	switch {
	case c.Workload == bench.Wait:
		latency = fmt.Sprintf("%.2f, %.2f ms", o.P50, o.P99)
	case o.P50 > 0:
		latency = fmt.Sprintf("%.1f, %.1f ms", o.P50, o.P99)
	}
	fmt.Fprintf(w, "| %s %s | %s | %s | %.0f | %s | %.1f µs | %s | %d MiB |\n", o.Name, o.Version, o.Settings, synced, o.Rate, ratio, o.CPU, latency, o.Peak>>20)
}

// write stores the results in a directory as JSON, as a document and as plots.
func (r *results) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "peers.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	for _, c := range r.Cases {
		if err := os.WriteFile(filepath.Join(dir, c.Name+".svg"), c.plot(), 0o644); err != nil {
			return err
		}
	}
	var b strings.Builder
	r.page(&b)
	return os.WriteFile(filepath.Join(dir, "peers.md"), []byte(b.String()), 0o644)
}

// page writes the document.
func (r *results) page(b *strings.Builder) {
	fmt.Fprintf(b, "# Fila beside others\n\nWritten by `make bench-peers`; the figures by round are in [peers.json](peers.json), what they mean in [benchmarks.md](../benchmarks.md).\n\n")
	fmt.Fprintf(b, "%d cores of %s, %d GB, Linux %s, %s. Client and server share them. Messages have %d bytes unless a case says otherwise; medians of %d rounds of %g s, all systems in turns. "+
		"*Synced*: what is acknowledged is on disk. CPU is that of all threads and processes of the server.\n",
		r.Machine.Cores, r.Machine.CPU, (r.Machine.Memory+1<<29)>>30, r.Machine.Kernel, r.Machine.Go, usualPayload, r.Rounds, r.Seconds)
	r.writeSummary(b)
	r.writeTable(b)
	for _, c := range r.Cases {
		fmt.Fprintf(b, "\n![%s](%s.svg)\n", c.What, c.Name)
	}
	fmt.Fprintf(b, "\n### What a batch of N messages is\n\n| system | |\n|---|---|\n")
	seen := map[string]bool{}
	for _, c := range r.Cases {
		for i := range c.Systems {
			if o := &c.Systems[i]; !seen[o.ID] {
				seen[o.ID] = true
				fmt.Fprintf(b, "| %s, %s | %s |\n", o.Name, o.Settings, o.Batch)
			}
		}
	}
}
