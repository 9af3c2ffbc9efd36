//go:build !race

package commands

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/broker/compat"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/ops/telemetry"
	"github.com/faisca/fila/internal/testkit"
)

func everyCommand() []*entry { return command.New(table()).All }

// A queue that a command takes without asking for a right to it would be a way around
// all rights; an argument that can be taken for another, a way to do what was not asked for.
func TestTheTableHasNoMistake(t *testing.T) {
	for _, mistake := range command.New(table()).Check() {
		t.Error(mistake)
	}
}

func TestNoNameStandsInTwoRows(t *testing.T) {
	if rows, names := len(table()), len(command.New(table()).Commands); rows != names {
		t.Errorf("%d rows, and %d names", rows, names)
	}
}

// A comment in the table names the file in which the rows below it are described.
func TestEveryRowStandsUnderTheNameOfItsFile(t *testing.T) {
	text, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	rows, source := 0, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, found := strings.CutPrefix(line, "// "); found && strings.HasSuffix(name, ".go") {
			code, err := os.ReadFile(name)
			if err != nil {
				t.Error(err)
			}
			source = string(code)
		}
		function, _, found := strings.Cut(line, "(")
		if source == "" || !found || strings.HasPrefix(line, "//") || strings.HasPrefix(line, "func ") {
			continue
		}
		rows++
		if !strings.Contains(source, "\nfunc "+function+"(") {
			t.Errorf("%s is not described in the file that the table names above it", line)
		}
	}
	if rows != len(table()) {
		t.Errorf("%d rows stand under the name of a file, the table has %d", rows, len(table()))
	}
}

func TestArityIsComputedFromTheArguments(t *testing.T) {
	for name, want := range map[string]int{
		"fila.enqueue": -3, "fila.lease": -2, "fila.mlease": -3, "fila.ack": -3, "fila.nack": -3, "fila.extend": -4, "fila.queue": -2,
		"fila.queue|create": -3, "fila.queue|info": 3, "fila.queue|list": -2, "fila.stats": -1, "fila.explain": -3, "fila.keys": -2, "fila.key": -2, "fila.key|set": -4, "fila.key|get": 4, "fila.throttle|set": -3,
		"fila.throttle|list": -2, "fila.config": -2, "fila.config|set": -4, "fila.config|get": 3, "fila.config|del": -3, "fila.config|list": -2, "fila.script": -2,
		"fila.script|load": 5, "fila.script|get": 4, "fila.script|del": 4, "fila.script|list": -2, "fila.script|stats": 3, "fila.script|test": -4, "hello": -1, "auth": -2, "ping": -1,
		"echo": 2, "quit": -1, "reset": 1, "select": 2, "client": -2, "client|id": 2, "client|kill": -3, "client|list": -2, "client|reply": 3,
		"client|tracking": -3, "client|unblock": -3, "command": -1, "command|getkeys": -4, "command|docs": -2, "config|get": -3, "config|set": -4, "slowlog|get": -2, "latency|reset": -2, "info": -1,
		"shutdown": -1, "time": 1, "cluster": -2,
	} {
		if got := command.New(table()).Resolve([]byte(name)).Arity; got != want {
			t.Errorf("%s: arity %d, want %d", name, got, want)
		}
	}
}

func TestUsageLineReadsLikeTheContract(t *testing.T) {
	r := command.New(table())
	for name, want := range map[string]string{
		"fila.lease":      "FILA.LEASE queue [COUNT n] [SAMEKEY] [BLOCK ms] [VISIBILITY ms] [CONSUMER name]",
		"fila.ack":        "FILA.ACK queue receipt [receipt ...] [USED n] [RESULT value]",
		"fila.nack":       "FILA.NACK queue receipt [ERROR text] [DELAY ms | DEAD] [USED n] [CAUSE name] [HOLD throttle-key ms [HOLD throttle-key ms ...]]",
		"fila.explain":    "FILA.EXPLAIN queue <KEY fairness-key | id>",
		"fila.key|set":    "FILA.KEY SET queue key [WEIGHT n] [MAXDEPTH n]",
		"fila.config|set": "FILA.CONFIG SET key value [key value ...]",
		"hello":           "HELLO [protover [AUTH username password] [SETNAME clientname]]",
		"client|reply":    "CLIENT REPLY <ON | OFF | SKIP>",
		"fila.queue|drop": "",

		"fila.script|load": "FILA.SCRIPT LOAD queue <ON_ENQUEUE | ON_FAILURE> source",
		"fila.config|list": "FILA.CONFIG LIST [PREFIX p] [CURSOR c] [COUNT n]",
	} {
		c := r.Resolve([]byte(name))
		if c == nil {
			if want != "" {
				t.Errorf("%s: not found", name)
			}
			continue
		}
		if got := c.UsageLine(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// What Redis 7.0.15 answers to COMMAND LIST is either here, or absent with a reason.
func TestEveryRedisCommandIsHereOrAbsentForAReason(t *testing.T) {
	redis := compat.RedisCommands()
	missing := map[string]string{}
	for _, a := range compat.Absent() {
		if a.Reason == "" {
			t.Errorf("%v: a reason is needed", a.Commands)
		}
		for _, name := range a.Commands {
			if missing[name] != "" {
				t.Errorf("%s is listed twice", name)
			}
			missing[name] = a.Reason
			if !slices.Contains(redis, name) {
				t.Errorf("%s is not a command of Redis 7.0", name)
			}
		}
	}
	r := command.New(table())
	for _, name := range redis {
		container, _, _ := strings.Cut(name, "|")
		here := r.Resolve([]byte(name)) != nil
		gone := missing[name] != "" || missing[container] != ""
		if here == gone {
			t.Errorf("%s: in the table: %v, in the list of absent ones: %v", name, here, gone)
		}
	}
}

func TestEveryEngineErrorHasACode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../engine/config.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("reply.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, isValue := n.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		for _, name := range spec.Names {
			// Never leaves the engine: it parks the task.
			if !strings.HasPrefix(name.Name, "Err") {
				continue
			}
			found++
			if name.Name != "ErrWouldBlock" && !bytes.Contains(source, []byte("engine."+name.Name+",")) {
				t.Errorf("engine.%s has no code in reply.go", name.Name)
			}
		}
		return true
	})
	if found < 10 {
		t.Errorf("engine/config.go has %d errors, want at least 10", found)
	}
	for _, c := range wireCodes() {
		if c.code == "" || strings.Trim(c.code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			t.Errorf("%q is no code: clients take the first word only if it is in upper case", c.code)
		}
	}
}

func TestCompatDocumentIsFresh(t *testing.T) {
	got, err := os.ReadFile("../redis-compat.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != compat.Markdown(Describe(), RedisVersion) {
		t.Error("redis-compat.md is stale, write it anew: make docs")
	}
}

func TestLookupIgnoresCaseAndAllocatesNothing(t *testing.T) {
	r := command.New(table())
	name := []byte("fIlA.EnQuEuE")
	if c := r.Find(name); c == nil || c.Name != "fila.enqueue" {
		t.Fatal("not found")
	}
	if n := testkit.Allocations(100, func() { r.Find(name) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for _, name := range []string{"", "fila", "fila.enqueue ", "fila.enqueue\x00", strings.Repeat("x", command.NameMax), strings.Repeat("x", command.NameMax+1)} {
		if r.Find([]byte(name)) != nil {
			t.Errorf("%q was found", name)
		}
	}
}

// TestExamplesAreTrue sends the examples of every Spec to a server of their own
// and compares what redis-cli would print.
func TestExamplesAreTrue(t *testing.T) {
	for _, c := range everyCommand() {
		t.Run(c.Name, func(t *testing.T) {
			conn := newServer(t, nil).connect("")
			trueExamples(t, c, func(args []string) string { return conn.do(args...) })
		})
	}
}

// Every command of the table has the same replies from a node that passes its commands on.
func TestExamplesAreTrueThroughAFollower(t *testing.T) {
	for _, c := range everyCommand() {
		t.Run(c.Name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				t.Helper()
				f := newFollowed(t, func(*Config) {})
				trueExamples(t, c, func(args []string) string {
					conn := f.talk("")
					conn.send(args)
					f.settle()
					return conn.received()
				})
			})
		})
	}
}

// trueExamples compares the replies to the examples of a command with those in its Spec.
func trueExamples(t *testing.T, c *entry, do func(args []string) (reply string)) {
	t.Helper()
	eachExample(t, c, func(e command.Example, args []string) string {
		reply := do(args)
		if got := mask(printed(t, reply)); e.Reply() != "..." && got != e.Reply() {
			t.Errorf("%s\ngot  %s\nwant %s", e.Command(), got, e.Reply())
		}
		return reply
	})
}

// eachExample calls do with the examples of a command, one after the other. The receipts and ids in them are those of
// the replies before, which do returns.
func eachExample(t *testing.T, c *entry, do func(e command.Example, args []string) (reply string)) {
	t.Helper()
	receipt, id := "", ""
	for _, e := range c.Spec.Examples {
		args, err := splitLine(strings.NewReplacer("<receipt>", receipt, "<id>", id).Replace(e.Command()))
		if err != nil {
			t.Fatal(err)
		}
		got := do(e, args)
		if found := receiptPattern().FindString(got); found != "" {
			receipt = found
		}
		if found := uuid().FindString(got); found != "" {
			id = found
		}
	}
}

func receiptPattern() *regexp.Regexp { return regexp.MustCompile(uuid().String() + `:\d+`) }

// mask puts placeholders where replies differ from one run to the next.
func mask(text string) string {
	text = receiptPattern().ReplaceAllString(text, "<receipt>")
	text = uuid().ReplaceAllString(text, "<id>")
	text = usage().ReplaceAllString(text, "$1<n>")
	return regexp.MustCompile(`\(integer\) 17672\d{8}`).ReplaceAllString(text, "(integer) <time>")
}

// FuzzCommands sends whatever comes to a whole server: nothing panics, each
// command gets one reply, and the reply is well formed.
func FuzzCommands(f *testing.F) {
	for i, c := range everyCommand() {
		if testing.Short() && i%5 != 0 {
			continue
		}
		f.Add(strings.ReplaceAll(c.UsageLine(), " ", "\x00"), false)
		for _, e := range c.Spec.Examples {
			f.Add(strings.ReplaceAll(e.Command(), " ", "\x00"), true)
		}
	}
	f.Add("SUBSCRIBE\x00a\x00a\x00\xff", true)
	f.Fuzz(func(t *testing.T, line string, resp3 bool) {
		s := newServer(t, nil)
		c := s.connect("")
		c.do("FILA.QUEUE", "CREATE", "orders")
		if resp3 {
			c.do("HELLO", "3")
		}
		got := c.do(strings.Split(line, "\x00")...)
		if got == "" {
			if len(c.window) == 0 && !c.closed && c.session.prefs.mute == muteNone {
				t.Fatalf("%q: no reply", line)
			}
			return
		}
		_, rest, err := decode(got)
		name, _, _ := strings.Cut(strings.ToUpper(line), "\x00")
		for strings.HasSuffix(name, "SUBSCRIBE") && rest != "" && err == nil { // a confirmation for each name
			_, rest, err = decode(rest)
		}
		if err != nil || rest != "" {
			t.Fatalf("%q: reply %q: %v", line, got, err)
		}
	})
}

// differences lists where Fila answers otherwise than Redis, by protocol and
// command, with the reason.
func differences() map[string]string {
	const (
		newer   = "newer clients send it; Redis has it since 7.2"
		oneDB   = "there is one database"
		ours    = "the value is Fila's own"
		allowed = "harmless here, and cluster clients send it to every server"
		arity   = "arity is computed from the arguments: too many of them are too many"
	)
	return map[string]string{
		"SELECT 1": oneDB, "CLIENT NO-TOUCH ON": newer, "READONLY": allowed, "READWRITE": allowed, "CONFIG GET appendonly": ours,
		"CONFIG GET databases": ours, "AUTH a b c": arity,
		"COMMAND DOCS ping":   "the words are Fila's own",
		"COMMAND DOCS select": "the words are Fila's own",
	}
}

// TestRepliesAreThoseOfRedis compares with what a real redis-server answered.
func TestRepliesAreThoseOfRedis(t *testing.T) {
	text, err := os.ReadFile("testdata/redis-7.0.15.txt")
	if err != nil {
		t.Fatal(err)
	}
	unused := differences()
	proto, command := "2", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "proto "):
			proto = line[len("proto "):]
		case strings.HasPrefix(line, "> "):
			command = line[2:]
		default:
			reason, differs := differences()[command]
			delete(unused, command)
			got := askAlone(t, proto, command)
			if same := got == line; same == differs {
				t.Errorf("RESP%s %s\ngot   %s\nredis %s\nlisted as different: %q", proto, command, got, line, reason)
			}
		}
	}
	for command := range unused {
		t.Errorf("%s is listed as different but not among Redis' replies", command)
	}
}

// askAlone sends the command over a connection of its own and shows the reply as
// the recording does.
func askAlone(t *testing.T, proto, command string) string {
	t.Helper()
	args, err := splitLine(command)
	if err != nil {
		t.Fatal(err)
	}
	c := newServer(t, nil).connect("")
	if proto == "3" {
		c.do("HELLO", "3")
	}
	got := c.do(args...)
	got = regexp.MustCompile(`(\$2\r\nid\r\n):\d+`).ReplaceAllString(got, "$1:<n>")
	if command == "CLIENT ID" {
		got = regexp.MustCompile(`\d+`).ReplaceAllString(got, "<n>")
	}
	got = strings.ReplaceAll(strings.ReplaceAll(got, "\r\n", `\r\n`), "\n", `\n`)
	if c.closed {
		got += "<EOF>"
	}
	return got
}

// exampleReplies are the replies to a command itself among its examples.
func exampleReplies(t *testing.T, table *command.Table[*Session, call], c *entry, proto string) (all []reply) {
	t.Helper()
	conn := newServer(t, nil).connect("")
	if c.Name != "hello" {
		conn.do("HELLO", proto)
	}
	receipt, id := "", ""
	examples := c.Spec.Examples
	if len(examples) == 0 { // a HELP
		examples = []Example{{c.Display}}
	}
	for _, e := range examples {
		args, err := splitLine(strings.NewReplacer("<receipt>", receipt, "<id>", id).Replace(e.Command()))
		if err != nil {
			t.Fatal(err)
		}
		if c.Name == "hello" {
			args[1] = proto
		}
		wire := conn.do(args...)
		if found := receiptPattern().FindString(wire); found != "" {
			receipt = found
		}
		if found := uuid().FindString(wire); found != "" {
			id = found
		}
		if found, _, err := table.Lookup(wordsOf(args)); err != nil || found.Name != c.Name {
			continue
		}
		for wire != "" {
			v, rest, err := decode(wire)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
			wire = rest
		}
	}
	return all
}

// Every code that is answered is explained, and what is explained is answered.
func TestEveryErrorCodeIsExplained(t *testing.T) {
	explained := map[string]bool{}
	for _, e := range compat.ErrorCodes() {
		explained[e.Code] = false
	}
	use := func(code string) {
		if _, ok := explained[code]; !ok {
			t.Errorf("%s is answered and not explained in internal/broker/compat/codes.go", code)
		}
		explained[code] = true
	}
	for _, c := range wireCodes() {
		use(c.code)
	}
	use(clusterDown)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	connections, err := filepath.Glob("../resp/*.go") // a connection answers some by itself
	if err != nil {
		t.Fatal(err)
	}
	machinery, err := filepath.Glob("../internal/command/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Concat(files, machinery, connections) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:Refuse\(|w\.Error\()"([A-Z]+)"`).FindAllStringSubmatch(string(text), -1) {
			use(m[1])
		}
	}
	for code, used := range explained {
		if !used {
			t.Errorf("%s is explained, and never answered", code)
		}
	}
}

// typeReader reads a type and tells whether a reply is of it.
type typeReader struct {
	rest  string
	proto string
}

func (r *typeReader) take(word string) bool {
	rest, ok := strings.CutPrefix(r.rest, word)
	if ok {
		r.rest = rest
	}
	return ok
}

// either reads alternatives, and returns what tells whether one of them fits.
func (r *typeReader) either() (func(reply) bool, error) {
	fits, err := r.one()
	for err == nil && r.take(" or ") {
		var other func(reply) bool
		if other, err = r.one(); err == nil {
			first := fits
			fits = func(v reply) bool { return first(v) || other(v) }
		}
	}
	return fits, err
}

func (r *typeReader) one() (func(reply) bool, error) {
	if r.take("(") {
		fits, err := r.either()
		if err == nil && !r.take(")") {
			err = fmt.Errorf("no ) before %q", r.rest)
		}
		return fits, err
	}
	three := map[string]string{"status": "+", "integer": ":", "string": "$", "text": "=", "nil": "_", "error": "-", "map": "%", "array": "*", "set": "~", "push": ">"}
	two := map[string]string{"text": "$", "map": "*", "set": "*", "push": "*"}
	for name, kind := range three {
		if !r.take(name) {
			continue
		}
		if k := two[name]; k != "" && r.proto == "2" {
			kind = k
		}
		is := func(v reply) bool { return strings.IndexByte(kind, v.kind) >= 0 }
		if name != "array" && name != "set" && name != "push" {
			return is, nil
		}
		inside, err := r.inside()
		return func(v reply) bool { return is(v) && inside(v.items) }, err
	}
	if r.take("any") {
		return func(reply) bool { return true }, nil
	}
	return nil, fmt.Errorf("no type: %q", r.rest)
}

// inside reads what is in an array.
func (r *typeReader) inside() (func([]reply) bool, error) {
	switch {
	case r.take(" of "):
		each, err := r.one()
		return func(items []reply) bool {
			for _, v := range items {
				if !each(v) {
					return false
				}
			}
			return true
		}, err
	case r.take(" ("):
		var all []func(reply) bool
		for {
			fits, err := r.either()
			if err != nil {
				return nil, err
			}
			all = append(all, fits)
			if r.take(")") {
				break
			}
			if !r.take(", ") {
				return nil, fmt.Errorf("neither , nor ) before %q", r.rest)
			}
		}
		return func(items []reply) bool {
			if len(items) != len(all) {
				return false
			}
			for i, fits := range all {
				if !fits(items[i]) {
					return false
				}
			}
			return true
		}, nil
	}
	return func([]reply) bool { return true }, nil
}

func fits(kind, proto string, v reply) (bool, error) {
	r := typeReader{rest: kind, proto: proto}
	is, err := r.either()
	if err == nil && r.rest != "" {
		err = fmt.Errorf("something follows: %q", r.rest)
	}
	return err == nil && is(v), err
}

// A sample that happens to be empty says nothing of the type, so types are declared; what
// is answered has to be of them.
func TestRepliesAreOfTheirTypes(t *testing.T) {
	table := command.New(table())
	for i, c := range everyCommand() {
		if c.Spec.Parse == nil && c.Spec.Local == nil {
			continue
		}
		kind, protos := c.Spec.Returns, []string{"2", "3"}
		if testing.Short() {
			protos = protos[i%2:][:1]
		}
		for _, proto := range protos {
			for _, v := range exampleReplies(t, table, c, proto) {
				is, err := fits(kind, proto, v)
				if err != nil {
					t.Errorf("%s: %q: %v", c.Name, kind, err)
				} else if !is && v.kind != '-' {
					t.Errorf("RESP%s %s: %s is not %s", proto, c.Name, v.text, kind)
				}
			}
		}
	}
}

func TestTypesTellRepliesApart(t *testing.T) {
	text := func(kind byte) reply { return reply{kind: kind} }
	list := func(kind byte, items ...reply) reply { return reply{kind: kind, items: items} }
	for _, x := range []struct {
		kind, proto string
		v           reply
		want        bool
	}{
		{"integer", "2", text(':'), true}, {"integer", "2", text('$'), false}, {"integer or nil", "3", text('_'), true},
		{"text", "2", text('$'), true}, {"text", "3", text('$'), false}, {"map", "2", list('*'), true}, {"map", "3", list('*'), false},
		{"array of string", "3", list('*'), true}, {"array of string", "3", list('*', text('$'), text(':')), false},
		{"array of (string or nil)", "3", list('*', text('$'), text('_')), true},
		{"array (string, array of map)", "3", list('*', text('$'), list('*', list('%'))), true},
		{"array (string, array of map)", "3", list('*', text('$')), false}, {"array (string, array of map)", "3", list('*', text('$'), text('$')), false},
	} {
		if is, err := fits(x.kind, x.proto, x.v); err != nil || is != x.want {
			t.Errorf("%s, RESP%s, %c %d: %v, %v", x.kind, x.proto, x.v.kind, len(x.v.items), is, err)
		}
	}
	for _, wrong := range []string{"", "integers", "array of", "array (string", "number", "string or", "string, string"} {
		if _, err := fits(wrong, "3", text('$')); err == nil {
			t.Errorf("%q is taken for a type", wrong)
		}
	}
}

// redis-cli prints texts as they are: without a newline the prompt follows on their
// last line.
func TestTextsEndWithANewline(t *testing.T) {
	texts := 0
	for _, c := range everyCommand() {
		conn := newServer(t, nil).connect("")
		conn.do("HELLO", "3")
		for _, e := range c.Spec.Examples {
			args, err := splitLine(e.Command())
			if err != nil {
				t.Fatal(err)
			}
			v, _, err := decode(conn.do(args...))
			if err != nil {
				t.Fatal(err)
			}
			if v.kind != '=' || v.text == "txt:" {
				continue
			}
			texts++
			if !strings.HasSuffix(v.text, "\n") {
				t.Errorf("%s: %q", e.Command(), v.text)
			}
		}
	}
	if texts < 4 {
		t.Errorf("%d texts: the test looks for them in the wrong way", texts)
	}
}

func TestWhatLatencyTellsEndsWithANewline(t *testing.T) {
	now := startTime()
	l := telemetry.NewLatency(func() time.Time { return now }, 100*time.Millisecond)
	s := newServer(t, func(c *Config) { c.Latency = l })
	c := s.connect("")
	c.do("HELLO", "3")
	ask := func(args ...string) {
		t.Helper()
		v, _, err := decode(c.do(args...))
		if err != nil {
			t.Fatal(err)
		}
		if v.kind != '=' || !strings.HasSuffix(v.text, "\n") {
			t.Errorf("%q: %q", args, v.text)
		}
	}
	ask("LATENCY", "DOCTOR")
	l.Observe(engine.ActivityCommit, time.Second)
	ask("LATENCY", "DOCTOR")
	c.do("CONFIG", "SET", "latency-monitor-threshold", "0")
	c.do("LATENCY", "RESET")
	ask("LATENCY", "DOCTOR")
}
