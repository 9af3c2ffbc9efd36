package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// The targets for scheduling and whether they were met. The engine alone is measured by its own
// benchmarks, whose output is read here.

// comparison is a row of the table at the end.
type comparison struct {
	what string
	seen float64 // percent above or below the base
	most float64 // maximum cost in percent
	rate bool    // seen compares rates: a cost is negative
	ok   bool    // it was measured
}

func (p *comparison) kept() bool {
	if p.rate {
		return p.seen > -p.most
	}
	return p.seen < p.most
}

func (p *comparison) row() string {
	seen, promised, kept := "not measured", fmt.Sprintf("< +%g %%", p.most), "?"
	if p.rate {
		promised = fmt.Sprintf("> -%g %%", p.most)
	}
	if p.ok {
		seen, kept = percent(p.seen), "no"
		if p.kept() {
			kept = "yes"
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", p.what, seen, promised, kept)
}

// verdicts prints the table of targets.
func (o *schedule) verdicts(w io.Writer, all []*contender, alone map[string]float64) error {
	var ps []comparison
	rates := func(what, name string) {
		enqueue, lease := comparison{what: what + ", in the broker: enqueue rate", most: 10, rate: true}, comparison{what: what + ", in the broker: lease rate", most: 10, rate: true}
		if c := contenderOf(all, name); c != nil {
			if base := contenderOf(all, c.base); base != nil {
				enqueue.seen, lease.seen = aboveBase(&c.enqueue, &base.enqueue), aboveBase(&c.lease, &base.lease)
				enqueue.ok, lease.ok = true, true
			}
		}
		ps = append(ps, enqueue, lease)
	}
	engine := func(what, metric string, most float64) {
		seen, ok := alone[metric]
		ps = append(ps, comparison{what: what, seen: seen, most: most, ok: ok})
	}
	rates(fmt.Sprintf("%d keys beside 10", o.keys), "many")
	engine("the same, the engine alone: CPU of an enqueue", "MillionKeysAgainstTen/1000000 enqueue-more-%", 10)
	engine("the same, the engine alone: CPU of a lease", "MillionKeysAgainstTen/1000000 lease-more-%", 10)
	rates("2 throttles a message", "throttles")
	engine("the same, the engine alone: CPU of a message", "TwoThrottlesAgainstNone all-more-%", 10)
	engine("round robin of 96 keys beside FIFO, the engine alone: CPU of a message", "FairnessAgainstFIFO all-more-%", 5)
	rows := []string{"", "| what | seen | promised | kept |", "|---|---|---|---|"}
	for i := range ps {
		rows = append(rows, ps[i].row())
	}
	_, err := fmt.Fprintln(w, strings.Join(rows, "\n"))
	return err
}

// readEngine returns the figures of benchmarks by name and unit, or none if no file is given.
func readEngine(file string) (map[string]float64, error) {
	figures := map[string]float64{}
	if file == "" {
		return figures, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(words[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 { // GOMAXPROCS
			name = name[:i]
		}
		for i := 2; i+1 < len(words); i += 2 {
			if x, err := strconv.ParseFloat(words[i], 64); err == nil {
				figures[name+" "+words[i+1]] = x
			}
		}
	}
	return figures, nil
}
