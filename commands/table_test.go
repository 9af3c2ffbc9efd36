package commands

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// update is a flag of the test binary.
var update = flag.Bool("update", false, "write redis-compat.md anew") //nolint:gochecknoglobals // flags have to be known before tests run

func everyCommand() []*command {
	var all []*command
	for _, c := range newRegistry(table()).order {
		all = append(append(all, c), c.subOrder...)
	}
	return all
}

func TestTableIsInAlphabeticalOrder(t *testing.T) {
	var names []string
	for _, s := range table() {
		names = append(names, s.Name)
		var subs []string
		for _, sub := range s.Subcommands {
			subs = append(subs, sub.Name)
		}
		if !slices.IsSorted(subs) {
			t.Errorf("%s: subcommands out of order: %v", s.Name, subs)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("out of order, or a name twice: %v", names)
	}
}

func TestEverySpecIsComplete(t *testing.T) {
	for _, c := range everyCommand() {
		s := c.spec
		if s.Summary == "" || s.Since == "" || s.Complexity == "" || s.Group == "" {
			t.Errorf("%s: summary, since, complexity and group are needed", c.name)
		}
		if s.Name != strings.ToUpper(s.Name) || len(s.Name) > nameMax {
			t.Errorf("%s: the name must be in upper case and at most %d long", c.name, nameMax)
		}
		does := 0
		for _, there := range []bool{s.Local != nil, s.Parse != nil} {
			if there {
				does++
			}
		}
		if does > 1 || does == 0 && len(s.Subcommands) == 0 {
			t.Errorf("%s: exactly one of Local and Parse does the work", c.name)
		}
		if does == 1 && len(s.Examples) == 0 && s.Name != "HELP" {
			t.Errorf("%s: an example is missing", c.name)
		}
		if len(s.Flags) > 0 && s.has("write") && s.has("readonly") {
			t.Errorf("%s: both writes and does not", c.name)
		}
	}
}

// Positions can only be worked out if nothing open stands before what follows.
func TestEverySyntaxIsUnambiguous(t *testing.T) {
	for _, c := range everyCommand() {
		open := ""
		for i := range c.positional {
			a := c.positional[i].arg
			if open != "" {
				t.Errorf("%s: %s follows %s, which takes any number of words", c.name, a.Name, open)
			}
			if a.Multiple && a.CountedBy == "" {
				open = a.Name
			}
			if a.CountedBy != "" && c.positional[i].counted < 0 {
				t.Errorf("%s: %s is counted by %s, which is not there", c.name, a.Name, a.CountedBy)
			}
		}
		if open != "" && len(c.options) > 0 && !c.spec.Loose {
			t.Errorf("%s: options behind %s would be taken for it", c.name, open)
		}
		if names := slices.Sorted(slices.Values(c.slots)); !c.spec.Loose && len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("%s: two arguments are asked for by one name: %v", c.name, names)
		}
		for i := range c.options {
			if a := c.options[i].arg; a.Token != strings.ToUpper(a.Token) {
				t.Errorf("%s: token %s must be in upper case", c.name, a.Token)
			}
		}
	}
}

func TestArityIsComputedFromTheArguments(t *testing.T) {
	for name, want := range map[string]int{
		"fila.enqueue": -3, "fila.lease": -2, "fila.mlease": -3, "fila.ack": -3, "fila.nack": -3, "fila.extend": 4, "fila.queue": -2,
		"fila.queue|create": -3, "fila.queue|info": 3, "fila.queue|list": -2, "fila.stats": -1, "fila.explain": -3, "fila.keys": -2, "fila.key": -2, "fila.key|set": -4, "fila.key|get": 4, "fila.throttle|set": -3,
		"fila.throttle|list": -2, "fila.config": -2, "fila.config|set": -4, "fila.config|get": 3, "fila.config|del": -3, "fila.config|list": -2, "fila.script": -2,
		"fila.script|load": 5, "fila.script|get": 4, "fila.script|del": 4, "fila.script|list": -2, "fila.script|stats": 3, "fila.script|test": -4, "hello": -1, "auth": -2, "ping": -1,
		"echo": 2, "quit": -1, "reset": 1, "select": 2, "client": -2, "client|id": 2, "client|kill": -3, "client|list": -2, "client|reply": 3,
		"client|tracking": -3, "client|unblock": -3, "command": -1, "command|getkeys": -4, "command|docs": -2, "config|get": -3, "config|set": -4, "slowlog|get": -2, "latency|reset": -2, "latency|graph": 3, "info": -1,
		"shutdown": -1, "time": 1, "cluster": -2,
	} {
		if got := newRegistry(table()).resolve([]byte(name)).arity; got != want {
			t.Errorf("%s: arity %d, want %d", name, got, want)
		}
	}
}

func TestUsageLineReadsLikeTheContract(t *testing.T) {
	r := newRegistry(table())
	for name, want := range map[string]string{
		"fila.lease":      "FILA.LEASE queue [COUNT n] [BLOCK ms] [VISIBILITY ms] [CONSUMER name]",
		"fila.ack":        "FILA.ACK queue receipt [receipt ...]",
		"fila.nack":       "FILA.NACK queue receipt [ERROR text] [DELAY ms | DEAD]",
		"fila.explain":    "FILA.EXPLAIN queue <KEY fairness-key | id>",
		"fila.key|set":    "FILA.KEY SET queue key [WEIGHT n]",
		"fila.config|set": "FILA.CONFIG SET key value [key value ...]",
		"hello":           "HELLO [protover [AUTH username password] [SETNAME clientname]]",
		"client|reply":    "CLIENT REPLY <ON | OFF | SKIP>",
		"fila.queue|drop": "",

		"fila.script|load": "FILA.SCRIPT LOAD queue <ON_ENQUEUE | ON_FAILURE> source",
		"fila.config|list": "FILA.CONFIG LIST [PREFIX p] [CURSOR c] [COUNT n]",
	} {
		c := r.resolve([]byte(name))
		if c == nil {
			if want != "" {
				t.Errorf("%s: not found", name)
			}
			continue
		}
		if got := c.usageLine(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// redisCommands is what Redis 7.0.15 answers to COMMAND LIST.
func redisCommands(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/redis-7.0.15-commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// What Redis 7.0.15 answers to COMMAND LIST is either here, or absent with a reason.
func TestEveryRedisCommandIsHereOrAbsentForAReason(t *testing.T) {
	redis := redisCommands(t)
	missing := map[string]string{}
	for _, a := range absent() {
		if a.reason == "" {
			t.Errorf("%v: a reason is needed", a.commands)
		}
		for _, name := range a.commands {
			if missing[name] != "" {
				t.Errorf("%s is listed twice", name)
			}
			missing[name] = a.reason
			if !slices.Contains(redis, name) {
				t.Errorf("%s is not a command of Redis 7.0", name)
			}
		}
	}
	r := newRegistry(table())
	for _, name := range redis {
		container, _, _ := strings.Cut(name, "|")
		here := r.resolve([]byte(name)) != nil
		gone := missing[name] != "" || missing[container] != ""
		if c := r.find([]byte(container)); c != nil && c.subs == nil && container != name {
			here = true // CLUSTER takes any subcommand
		}
		if here == gone {
			t.Errorf("%s: in the table: %v, in the list of absent ones: %v", name, here, gone)
		}
	}
}

func TestEveryEngineErrorHasACode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../engine/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, isValue := n.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		for _, name := range spec.Names {
			// Never leaves the engine: it parks the task.
			if name.Name != "ErrWouldBlock" && !bytes.Contains(source, []byte("engine."+name.Name+",")) {
				t.Errorf("engine.%s has no code in errors.go", name.Name)
			}
		}
		return true
	})
	for _, c := range wireCodes() {
		if c.code == "" || strings.Trim(c.code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			t.Errorf("%q is no code: clients take the first word only if it is in upper case", c.code)
		}
	}
}

func TestCompatDocumentIsFresh(t *testing.T) {
	const path = "../redis-compat.md"
	want := compatDocument(redisCommands(t))
	if *update {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("redis-compat.md is stale, write it anew: make docs")
	}
}
