package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// report is what came of a run.
type report struct {
	tree    *tree
	workers int
	kills   int
	again   int                 // enqueues sent again, as their answer was lost in a kill
	found   map[string][]result // by path; more than one where a message was delivered again or stored twice
	took    time.Duration

	same     int      // files that the workers and sha256sum agree about
	changing int      // files that one of them could read and the other could not, or neither: gone, or closed to us
	missing  []string // files without any result
	wrong    []string // files that the workers and sha256sum do not agree about
}

// repeats is how many results there are beyond one for each file.
func (r *report) repeats() int {
	n := 0
	for _, results := range r.found {
		n += len(results) - 1
	}
	return n
}

// compare holds every result of every file against sha256sum's.
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
			r.changing++ // accounted for, but there is nothing to compare with any more
		}
	}
}

// verdict is an error unless every file is accounted for.
func (r *report) verdict() error {
	if len(r.missing)+len(r.wrong) == 0 {
		return nil
	}
	const shown = 10
	var b strings.Builder
	for _, path := range r.missing[:min(shown, len(r.missing))] {
		fmt.Fprintf(&b, "\nno worker had %s", path)
	}
	for _, path := range r.wrong[:min(shown, len(r.wrong))] {
		fmt.Fprintf(&b, "\n%s: %+v is not what sha256sum says", path, r.found[path])
	}
	return errors.New("files were lost or differ" + b.String())
}

// write writes the table.
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
