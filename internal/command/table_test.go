package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/resp"
)

// session and call stand for what executes commands: the table does not look at them.
type (
	session struct{}
	call    string
	spec    = Spec[*session, call]
)

// local is a description without a mistake.
func local(name string, args ...Arg) spec {
	return spec{
		Name: name, Group: NativeGroup, Since: "1", Complexity: "O(1)", Returns: "status", Summary: "Does it.", Flags: []string{"write"}, Args: args,
		Examples: []Example{{name, "OK"}}, Local: func(*session, *Input, *resp.Writer) error { return nil },
	}
}

func words(line string) [][]byte {
	var all [][]byte
	for word := range strings.FieldsSeq(line) {
		all = append(all, []byte(word))
	}
	return all
}

func TestATableWithoutMistakesHasNone(t *testing.T) {
	queue := Arg{Name: "queue", Type: Key}
	if mistakes := New([]spec{local("A", queue), local("B", queue, Arg{Name: "n", Type: Integer, Token: "COUNT", Optional: true})}).Check(); mistakes != nil {
		t.Error(mistakes)
	}
}

func TestEachMistakeInATableIsFound(t *testing.T) {
	change := func(with func(*spec)) spec {
		s := local("A")
		with(&s)
		return s
	}
	many := Arg{Name: "many", Type: String, Multiple: true}
	option := func(name string) Arg {
		return Arg{Name: name, Type: String, Token: strings.ToUpper(name), Optional: true}
	}
	for want, s := range map[string]spec{
		"are needed":          change(func(s *spec) { s.Summary = "" }),
		"in upper case and":   local("a"),
		"does the work":       change(func(s *spec) { s.Local = nil }),
		"example is missing":  change(func(s *spec) { s.Examples = nil }),
		"writes and does not": change(func(s *spec) { s.Flags = []string{"write", "readonly"} }),
		"out of order":        change(func(s *spec) { s.Subcommands = []spec{local("Z"), local("B")} }),
		"any number of words": local("A", many, Arg{Name: "x", Type: String}),
		"is counted by n":     local("A", Arg{Name: "x", Type: String, Multiple: true, CountedBy: "n"}),
		"taken for it":        local("A", many, option("x")),
		"by one name":         local("A", option("x"), option("x")),
		"token x must be":     local("A", Arg{Name: "x", Type: String, Token: "x", Optional: true}),
		"needs no right":      local("A", Arg{Name: "queue", Type: String}),
		"only the last TO":    local("A", Arg{Name: "queue", Type: Key, Token: "TO", Optional: true, Multiple: true}),
		"are not scanned":     change(func(s *spec) { s.Loose, s.Args = true, []Arg{{Name: "queue", Type: Key}} }),
	} {
		if mistakes := New([]spec{s}).Check(); !slices.ContainsFunc(mistakes, func(m string) bool { return strings.Contains(m, want) }) {
			t.Errorf("want a mistake with %q, got %v", want, mistakes)
		}
	}
}

func TestLookupFindsCommandsAndSubcommandsInAnyCase(t *testing.T) {
	container := spec{Name: "BOX", Group: NativeGroup, Subcommands: []spec{local("OPEN"), local("SHUT")}}
	table := New([]spec{container, local("A")})
	for line, want := range map[string]string{
		"a": "a", "A x y": "a: x y", "box open": "box|open", "Box SHUT x": "box|shut: x", "box": "wrong number of arguments for 'box' command",
		"box lift": "unknown subcommand 'lift'. Try BOX HELP.", "crate x": "unknown command 'crate', with args beginning with: 'x' ",
	} {
		c, rest, err := table.Lookup(words(line))
		var got string
		switch {
		case err != nil:
			got = err.Error()
		case len(rest) > 0:
			got = c.Name + ": " + string(bytes.Join(rest, []byte(" ")))
		default:
			got = c.Name
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func TestScanSortsWordsIntoArguments(t *testing.T) {
	table := New([]spec{local("A",
		Arg{Name: "queue", Type: Key}, Arg{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: CountLimit},
		Arg{Name: "t", Type: String, Token: "TAG", Optional: true, Multiple: true})})
	c := table.Find([]byte("a"))
	in := Input{CountMax: 10}
	if err := in.Scan(&c.Syntax, words("q TAG x count 7 tag y")); err != nil {
		t.Fatal(err)
	}
	if in.Text("queue") != "q" || in.Integer("count", 0) != 7 || in.Uses("tag") != 2 || !slices.Equal(in.Texts("tag"), []string{"x", "y"}) {
		t.Errorf("queue %q, count %d, tags %q", in.Text("queue"), in.Integer("count", 0), in.Texts("tag"))
	}
	for line, want := range map[string]string{
		"":                "wrong number of arguments for 'a' command",
		"q COUNT 11":      "COUNT must be an integer from 1 to 10, not '11'",
		"q COUNT":         "syntax error near 'COUNT', which needs a value, usage: A queue [COUNT n] [TAG t [TAG t ...]]",
		"q COUNT 1 COUNT": "syntax error near 'COUNT', which is given twice, usage: A queue [COUNT n] [TAG t [TAG t ...]]",
		"q x":             "syntax error near 'x', usage: A queue [COUNT n] [TAG t [TAG t ...]]",
	} {
		if err := in.Scan(&c.Syntax, words(line)); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", line, err, want)
		}
	}
}

// choiceTable has two choices whose words are those of each other and of an option.
func choiceTable() *Table[*session, call] {
	choice := func(token string, members ...Arg) Arg {
		return Arg{Name: strings.ToLower(token), Type: OneOf, Token: token, Optional: true, Args: members}
	}
	on, off := Arg{Name: "on", Type: PureToken, Token: "ON"}, Arg{Name: "off", Type: PureToken, Token: "OFF"}
	return New([]spec{local("A",
		Arg{Name: "queue", Type: Key},
		Arg{Name: "pattern", Type: Pattern, Token: "ERROR", Optional: true},
		choice("GROUP", Arg{Name: "error", Type: PureToken, Token: "ERROR"}),
		choice("SIGNALS", on, off, Arg{Name: "n", Type: Integer, Token: "EVERY", Min: 1, Max: 9}), choice("TRACES", on, off))})
}

func TestTwoChoicesMayShareAWord(t *testing.T) {
	table := choiceTable()
	if mistakes := table.Check(); mistakes != nil {
		t.Fatal(mistakes)
	}
	c := table.Find([]byte("a"))
	const usage = "queue [ERROR pattern] [GROUP <ERROR>] [SIGNALS <ON | OFF | EVERY n>] [TRACES <ON | OFF>]"
	if c.Usage() != usage {
		t.Errorf("the usage is %s", c.Usage())
	}
	names := []string{"error", "group.error", "signals.on", "signals.off", "signals.every", "traces.on", "traces.off"}
	var in Input
	for line, want := range map[string]string{
		"q": "", "q ERROR x": "error", "q GROUP ERROR": "group.error", "q group error error GROUP": "error group.error",
		"q ERROR ERROR GROUP ERROR": "error group.error", "q SIGNALS ON": "signals.on", "q TRACES on SIGNALS off": "signals.off traces.on",
		"q SIGNALS EVERY 5 TRACES OFF": "signals.every traces.off",

		"q GROUP":                   "syntax error near 'GROUP', which needs a value, usage: A " + usage,
		"q GROUP ON":                "syntax error near 'ON', usage: A " + usage,
		"q TRACES EVERY 5":          "syntax error near 'EVERY', usage: A " + usage,
		"q SIGNALS ON SIGNALS OFF":  "syntax error near 'SIGNALS', which is given twice, usage: A " + usage,
		"q GROUP ERROR GROUP ERROR": "syntax error near 'GROUP', which is given twice, usage: A " + usage,
		"q ON":                      "syntax error near 'ON', usage: A " + usage,
		"q SIGNALS EVERY 10":        "EVERY must be an integer from 1 to 9, not '10'",
	} {
		var got []string
		err := in.Scan(&c.Syntax, words(line))
		for _, name := range names {
			if err == nil && in.Has(name) {
				got = append(got, name)
			}
		}
		if text := strings.Join(got, " "); err == nil && text != want || err != nil && err.Error() != want {
			t.Errorf("%s: got %q, %v, want %s", line, text, err, want)
		}
	}
	if err := in.Scan(&c.Syntax, words("q ERROR timeout GROUP ERROR SIGNALS every 5")); err != nil ||
		in.Text("error") != "timeout" || in.Integer("signals.every", 0) != 5 {
		t.Errorf("error %q, signals.every %d, %v", in.Text("error"), in.Integer("signals.every", 0), err)
	}
}

// FuzzScan: whatever a client sends is refused or sorted into arguments, each of which
// is a word that was sent.
func FuzzScan(f *testing.F) {
	for _, line := range []string{"q", "q ERROR x GROUP ERROR", "q SIGNALS EVERY 5 TRACES ON", "q GROUP", "q SIGNALS EVERY", "ERROR ERROR ERROR"} {
		f.Add(line)
	}
	c := choiceTable().Find([]byte("a"))
	f.Fuzz(func(t *testing.T, line string) {
		args := words(line)
		var in Input
		if in.Scan(&c.Syntax, args) != nil {
			return
		}
		if !slices.Contains(strings.Fields(line), in.Text("queue")) || in.Has("error") && !slices.Contains(strings.Fields(line), in.Text("error")) {
			t.Errorf("%q: queue %q, error %q", line, in.Text("queue"), in.Text("error"))
		}
		if in.Has("signals.on") && in.Has("signals.off") || in.Has("traces.on") && in.Has("traces.off") {
			t.Errorf("%q: both of a choice", line)
		}
		words := 1
		for name, n := range map[string]int{"error": 2, "group.error": 2, "signals.on": 2, "signals.off": 2, "signals.every": 3, "traces.on": 2, "traces.off": 2} {
			if in.Has(name) {
				words += n
			}
		}
		if words != len(args) {
			t.Errorf("%q: %d words are in arguments", line, words)
		}
	})
}

func TestLookupAndScanAllocateNothing(t *testing.T) {
	table := New([]spec{local("A", Arg{Name: "queue", Type: Key}, Arg{Name: "n", Type: Integer, Token: "COUNT", Optional: true})})
	line := words("A orders COUNT 7")
	var in Input
	n := testkit.Allocations(100, func() {
		c, rest, err := table.Lookup(line)
		if err == nil {
			err = in.Scan(&c.Syntax, rest)
		}
		if err != nil || in.Text("queue") != "orders" || !in.Has("count") {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
