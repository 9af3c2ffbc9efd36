package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// report is the result of a run.
type report struct {
	tree    *tree
	workers int
	kills   int
	again   int                 // enqueues repeated because a kill prevented the reply
	found   map[string][]result // by path; several if a message was delivered again or stored twice
	took    time.Duration

	same     int      // files with the same result from workers and sha256sum
	changing int      // files unreadable to the workers, sha256sum or both: removed or without permission
	missing  []string // files without a result
	wrong    []string // files with different results
}

// repeats returns the number of results beyond one per file.
func (r *report) repeats() int {
	n := 0
	for _, results := range r.found {
		n += len(results) - 1
	}
	return n
}

// compare compares every result with sha256sum.
func (r *report) compare(sums map[string]string) {
	for _, path := range r.tree.files {
		results := r.found[path]
		want, readable := sums[path]
		differs := slices.ContainsFunc(results, func(x result) bool { return x.Error == "" && x.Sum != want })
		failed := slices.ContainsFunc(results, func(x result) bool { return x.Error != "" })
		switch {
		case len(results) == 0:
			r.missing = append(r.missing, path)
		case readable && (differs || failed):
			r.wrong = append(r.wrong, path)
		case readable:
			r.same++
		default:
			r.changing++ // accounted for, but no sum to compare with
		}
	}
}

// verdict returns an error unless every file is accounted for.
func (r *report) verdict() error {
	if len(r.missing)+len(r.wrong) == 0 {
		return nil
	}
	const shown = 10
	var b strings.Builder
	for _, path := range r.missing[:min(shown, len(r.missing))] {
		fmt.Fprintf(&b, "\nno worker reported %s", path)
	}
	for _, path := range r.wrong[:min(shown, len(r.wrong))] {
		fmt.Fprintf(&b, "\n%s: %+v differs from sha256sum", path, r.found[path])
	}
	return errors.New("files were lost or differ" + b.String())
}

// write prints the table.
func (r *report) write(w io.Writer) {
	row := func(name string, value any) { fmt.Fprintf(w, "%-26s %8v\n", name, value) }
	row("files", len(r.tree.files))
	row("packages (fairness keys)", len(r.tree.packages))
	row("other entries, left out", r.tree.skipped)
	row("worker processes", r.workers)
	row("kills of the broker", r.kills)
	row("enqueues sent again", r.again)
	row("repeats", r.repeats())
	row("as sha256sum says", r.same)
	row("unreadable or gone", r.changing)
	row("missing", len(r.missing))
	row("different", len(r.wrong))
	row("seconds", fmt.Sprintf("%.1f", r.took.Seconds()))
	verdict := "every file is accounted for"
	if r.verdict() != nil {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\nverdict: %s\n", verdict)
}
