package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints the output of what has failed, the table of phases, the slowest tests and the names of the phases that
// have failed: one that takes too long fails without a failed test. Its last line is the sum of the tests.
func report(w io.Writer, tier string, all []result, took time.Duration) {
	for _, res := range all {
		if res.state == failed {
			fmt.Fprintf(w, "\n=== %s has failed ===\n%s", res.phase, res.failure)
		}
	}
	var sum result
	var tests []test
	var broken []string
	fmt.Fprintf(w, "\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tseconds\tCPU seconds\ttests\tskipped\t\t\n", tier)
	for _, res := range all {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%d\t%d\t%s\t\n", res.phase, res.took.Seconds(), res.cpu.Seconds(), res.counts.Passed+res.counts.Failed, res.counts.Skipped, res.state)
		sum.cpu += res.cpu
		sum.counts = sum.counts.plus(res.counts)
		tests = append(tests, res.tests...)
		if res.state == failed {
			broken = append(broken, res.phase)
		}
	}
	fmt.Fprintf(t, "all\t%.1f\t%.1f\t%d\t%d\t\t\n", took.Seconds(), sum.cpu.Seconds(), sum.counts.Passed+sum.counts.Failed, sum.counts.Skipped)
	_ = t.Flush() // as all printing
	slices.SortStableFunc(tests, func(a, b test) int { return int(b.took - a.took) })
	if len(tests) > 0 {
		fmt.Fprintf(w, "\nslowest tests, seconds\n")
	}
	for _, x := range tests[:min(len(tests), slowestOf)] {
		fmt.Fprintf(w, "%7.1f  %s %s\n", x.took.Seconds(), x.pkg, x.name)
	}
	if len(broken) > 0 {
		fmt.Fprintf(w, "\nfailed: %s\n", strings.Join(broken, ", "))
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", sum.counts.Passed, sum.counts.Failed, sum.counts.Skipped)
}

// list prints the phases and their commands.
func list(w io.Writer, phases []phase) {
	for _, p := range phases {
		command := strings.Join(slices.Concat(p.env, p.args), " ")
		if p.dir != "" {
			command = "cd " + p.dir + " && " + command
		}
		fmt.Fprintf(w, "%s: %s\n", p.name, command)
	}
}
