package command

import (
	"fmt"
	"slices"
	"strings"
)

// Check returns the mistakes in a table, each as a sentence. It is for tests.
func (t *Table[S, C]) Check() []string {
	var mistakes []string
	for _, c := range t.All {
		for _, m := range append(c.checkSpec(), append(c.checkSyntax(), c.checkRights()...)...) {
			mistakes = append(mistakes, c.Name+": "+m)
		}
	}
	return mistakes
}

// checkSpec checks that a description is complete.
func (c *Command[S, C]) checkSpec() (mistakes []string) {
	s := c.Spec
	wrong := func(is bool, format string, args ...any) {
		if is {
			mistakes = append(mistakes, fmt.Sprintf(format, args...))
		}
	}
	container := len(s.Subcommands) > 0
	wrong(s.Summary == "" || s.Since == "" || s.Complexity == "" || s.Group == "", "summary, since, complexity and group are needed")
	wrong(s.Name != strings.ToUpper(s.Name) || len(s.Name) > NameMax, "the name must be in upper case and at most %d long", NameMax)
	wrong(s.Local != nil && s.Parse != nil || !s.Executable() && !container, "exactly one of Local and Parse does the work")
	wrong(s.Executable() && s.Returns == "", "the type of its reply is missing: Returns")
	wrong(s.Room != nil && s.Memory == "", "it has Room, and Memory does not describe it")
	wrong(s.Executable() && len(s.Examples) == 0 && s.Name != "HELP", "an example is missing")
	wrong(s.Has("write") && s.Has("readonly"), "both writes and does not")
	var names []string
	for i := range s.Subcommands {
		names = append(names, s.Subcommands[i].Name)
	}
	wrong(!slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names), "subcommands out of order, or a name twice: %v", names)
	return mistakes
}

// checkSyntax checks that arguments are unambiguous: no argument of variable length precedes a
// positional one.
func (x *Syntax) checkSyntax() (mistakes []string) {
	open := ""
	for i := range x.positional {
		e := &x.positional[i]
		if open != "" {
			mistakes = append(mistakes, e.arg.Name+" follows "+open+", which takes any number of words")
		}
		if e.arg.Multiple && e.arg.CountedBy == "" {
			open = e.arg.Name
		}
		if e.arg.CountedBy != "" && e.counted < 0 {
			mistakes = append(mistakes, e.arg.Name+" is counted by "+e.arg.CountedBy+", which is not there")
		}
	}
	if last := len(x.positional) - 1; open != "" && len(x.options) > 0 && !x.loose && !x.positional[last].arg.NeverToken {
		mistakes = append(mistakes, "options behind "+open+" would be taken for it")
	}
	if names := slices.Sorted(slices.Values(x.slots)); !x.loose && len(slices.Compact(slices.Clone(names))) != len(names) {
		mistakes = append(mistakes, fmt.Sprintf("two arguments are asked for by one name: %v", names))
	}
	for i := range x.options {
		if token := x.options[i].arg.Token; token != strings.ToUpper(token) {
			mistakes = append(mistakes, "token "+token+" must be in upper case")
		}
	}
	return mistakes
}

// checkRights checks that a command requires a right to each queue that it accepts.
func (x *Syntax) checkRights() (mistakes []string) {
	var named []element
	for _, e := range append(slices.Clone(x.positional), x.options...) {
		named = append(append(named, e), e.members...)
	}
	for _, e := range named {
		a := e.arg
		isQueue := a.Type == Key || slices.Contains([]string{"queue", "dlq", "TO", "DLQ"}, a.Name) || a.Token == "TO" || a.Token == "DLQ"
		if !isQueue || a.Type == OneOf {
			continue
		}
		if !slices.ContainsFunc(x.guarded, func(g guard) bool { return g.slot == e.slot }) {
			mistakes = append(mistakes, x.slots[e.slot]+" names a queue and needs no right to it")
		}
		if a.Multiple && a.Token != "" {
			mistakes = append(mistakes, "only the last "+a.Token+" would be looked at")
		}
	}
	if len(x.guarded) > 0 && x.loose {
		mistakes = append(mistakes, "its arguments are not scanned, so its queues are not guarded")
	}
	return mistakes
}
