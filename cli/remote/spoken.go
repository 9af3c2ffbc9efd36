package remote

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/client"
)

// What the broker refuses, it explains in its commands. Here they are said as they are typed: FILA.QUEUE CREATE as
// `fila queues create`, FORCE as --force.

// spokenError is a refusal in the words of the command line.
type spokenError struct {
	text string
	err  error
}

func (e *spokenError) Error() string { return e.text }
func (e *spokenError) Unwrap() error { return e.err }

// spoken returns an error of the call in the words of the command line.
func (c *call) spoken(err error) error {
	refusal, ok := errors.AsType[client.RefusalError](err)
	if !ok {
		return err
	}
	text := typedCommands().Replace(refusal.Text)
	for i := range c.options {
		if o := &c.options[i]; o.token != "" {
			text = regexp.MustCompile(`(^|[ ,;])`+o.token+`([ ,;]|$)`).ReplaceAllString(text, "${1}--"+o.name+"$2")
		}
	}
	if refusal.Code == "NOQUEUE" {
		text += c.nearQueues()
	}
	said := strings.Replace(err.Error(), refusal.Text, text, 1)
	if refusal.Text != "" && said != err.Error() {
		err = &spokenError{said, err}
	}
	if c.wrong(refusal.Code, text) {
		return UsageError{err}
	}
	return err
}

// wrong says whether a refusal is about what was typed, in its own words, and not about what the broker holds.
func (c *call) wrong(code, text string) bool {
	about := func(o option) bool {
		return o.token != "" && c.given(o.name) && strings.HasPrefix(text, "--"+o.name+" ")
	}
	switch code {
	case "ERR":
		return strings.HasPrefix(text, "syntax error") || strings.Contains(text, " must be ") || slices.ContainsFunc(c.options, about)
	case "INVALID":
		text = strings.TrimPrefix(text, "not allowed: ")
		return strings.Contains(text, " must ") && slices.ContainsFunc(c.options, about)
	}
	return false
}

// typedCommands replaces commands of the broker by those of the table that send them.
func typedCommands() *strings.Replacer {
	typed := map[string]string{}
	for _, r := range table() {
		wire, _, _ := strings.Cut(r.wire, " $")
		if wire != "" && typed[wire] == "" {
			typed[wire] = "`fila " + r.name + "`"
		}
	}
	wires := make([]string, 0, len(typed))
	for wire := range typed {
		wires = append(wires, wire)
	}
	// FILA.QUEUE PAUSE is not the command FILA.QUEUE with a word behind it.
	slices.SortFunc(wires, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var pairs []string
	for _, wire := range wires {
		pairs = append(pairs, wire, typed[wire])
	}
	return strings.NewReplacer(pairs...)
}

// nearQueues says which queues may have been meant.
func (c *call) nearQueues() (hint string) {
	var known []string
	for _, name := range []string{"QUEUE", "DLQ"} {
		for _, given := range c.args[name] {
			if known == nil {
				known = names(c.broker, "FILA.QUEUE", "LIST")
			}
			if i := Nearest(given, known); i >= 0 && known[i] != given {
				hint += fmt.Sprintf("; did you mean %s?", known[i])
			}
		}
	}
	return hint
}

// Nearest is the index of the candidate that is most like what was written, or
// -1 when none is like enough to be meant.
func Nearest(written string, candidates []string) int {
	best, least := -1, max(1, len(written)/3)+1
	for i, c := range candidates {
		if d := distance(written, c); d < least {
			best, least = i, d
		}
	}
	return best
}

// distance counts the letters to add, drop or change to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}
