package command

import "strings"

// required returns the least number of words of the argument.
func (a *Arg) required() int {
	if a.Optional {
		return 0
	}
	n := 0
	if a.Token != "" && a.Type != PureToken {
		n++
	}
	switch a.Type {
	case Block:
		for i := range a.Args {
			n += a.Args[i].required()
		}
		return n
	case OneOf:
		least := a.Args[0].required()
		for i := range a.Args {
			least = min(least, a.Args[i].required())
		}
		return n + least
	default:
		return n + 1
	}
}

// longest returns the greatest number of words of a positional argument that is not Multiple.
func (a *Arg) longest() int {
	most := 1
	for i := range a.Args { // of a oneof
		if m := &a.Args[i]; m.Token != "" && m.Type != PureToken {
			most = 2
		}
	}
	return most
}

// open reports whether the number of words may exceed the required one.
func (a *Arg) open() bool {
	if a.Optional || a.Multiple {
		return true
	}
	for i := range a.Args {
		if a.Args[i].open() {
			return true
		}
	}
	return a.Type == OneOf && a.longest() > a.required()
}

// arity returns Redis' arity: the number of words including the name, negative if it is a minimum.
// words is 1 for a command, 2 for a subcommand.
func (s *Spec[S, C]) arity(words int) int {
	n, open := words, false
	switch {
	case s.Local != nil && len(s.Subcommands) > 0:
		return -words
	case len(s.Subcommands) > 0:
		return -(words + 1)
	}
	for i := range s.Args {
		n += s.Args[i].required()
		open = open || s.Args[i].open()
	}
	if open {
		return -n
	}
	return n
}

// usage returns the arguments on one line, such as
// "queue receipt [ERROR text] [DELAY ms] [DEAD]".
func (s *Spec[S, C]) usage() string {
	words := make([]string, 0, len(s.Args))
	for i := range s.Args {
		words = append(words, s.Args[i].usage())
	}
	return strings.Join(words, " ")
}

func (a *Arg) usage() string {
	text := a.body()
	switch {
	case a.Multiple && a.Token == "":
		text += " [" + text + " ...]"
	case a.Multiple:
		text += " [" + text + " ...]"
	}
	if a.Optional {
		return "[" + text + "]"
	}
	return text
}

func (a *Arg) body() string {
	var text string
	switch a.Type {
	case PureToken:
		return a.Token
	case OneOf, Block:
		separator := " "
		if a.Type == OneOf {
			separator = " | "
		}
		parts := make([]string, 0, len(a.Args))
		for i := range a.Args {
			parts = append(parts, a.Args[i].usage())
		}
		text = strings.Join(parts, separator)
		if a.Type == OneOf && (!a.Optional || a.Token != "") {
			text = "<" + text + ">"
		}
	default:
		text = a.Name
	}
	if a.Token != "" {
		return a.Token + " " + text
	}
	return text
}
