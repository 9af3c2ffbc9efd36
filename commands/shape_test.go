package commands

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// replyShapes executes the examples of every command in both protocols and
// returns what the replies look like.
func replyShapes(t *testing.T) map[string]shape {
	t.Helper()
	shapes := map[string]shape{}
	for _, c := range everyCommand() {
		if two := exampleShape(t, c, "2"); two != "" {
			shapes[c.name] = shape{two, exampleShape(t, c, "3")}
		}
	}
	return shapes
}

// exampleShape is the shape of the last reply to the command itself that says
// most: an error or nothing only if there is no other.
func exampleShape(t *testing.T, c *command, proto string) string {
	t.Helper()
	conn := newServer(t, nil).connect("")
	if c.name != "hello" {
		conn.do("HELLO", proto)
	}
	best, receipt, id := "", "", ""
	examples := c.spec.Examples
	if len(examples) == 0 { // a HELP
		examples = []Example{{Command: c.display}}
	}
	for _, e := range examples {
		args, err := splitLine(strings.NewReplacer("<receipt>", receipt, "<id>", id).Replace(e.Command))
		if err != nil {
			t.Fatal(err)
		}
		if c.name == "hello" {
			args[1] = proto
		}
		wire := conn.do(args...)
		if found := receiptPattern().FindString(wire); found != "" {
			receipt = found
		}
		if found := uuid().FindString(wire); found != "" {
			id = found
		}
		if newRegistry(table()).findLine(args) != c.name {
			continue
		}
		for wire != "" {
			v, rest, err := decode(wire)
			if err != nil {
				t.Fatal(err)
			}
			if s := v.shape(3); best == "" || s != "error" && s != "nil" && !strings.HasPrefix(s, "empty") {
				best = s
			}
			wire = rest
		}
	}
	if best == "error" { // what it answers where it can do something, no example shows
		return ""
	}
	return best
}

// findLine returns the full name of the command in a line of words.
func (r *registry) findLine(args []string) string {
	c := r.find([]byte(args[0]))
	if c == nil {
		return ""
	}
	if c.subs != nil && len(args) > 1 {
		if s := lookup(c.subs, []byte(args[1])); s != nil {
			return s.name
		}
	}
	return c.name
}

// shape says what kind of reply it is, and so many levels deep what is in it.
func (v reply) shape(levels int) string {
	kinds := map[byte]string{
		'+': "status", '-': "error", ':': "integer", '_': "nil", '=': "text", '$': "string", '*': "array", '~': "set", '%': "map", '>': "push",
	}
	kind := kinds[v.kind]
	if strings.IndexByte("*~>", v.kind) < 0 || levels == 0 {
		return kind
	}
	if len(v.items) == 0 {
		return "empty " + kind
	}
	const many = 9
	inside := make([]string, len(v.items))
	alike, pairs := true, len(v.items)%2 == 0
	for i, item := range v.items {
		inside[i] = item.shape(levels - 1)
		alike = alike && inside[i] == inside[0]
		pairs = pairs && (i%2 == 1 || item.kind == '$')
	}
	switch {
	case alike && len(v.items) != 2:
		return kind + " of " + inside[0]
	case len(inside) > many && pairs:
		return kind + " of field, value, ..."
	case len(inside) > many:
		return kind + " (" + strings.Join(inside[:many], ", ") + ", ...)"
	default:
		return kind + " (" + strings.Join(inside, ", ") + ")"
	}
}

// Every code that is answered is explained, and what is explained is answered.
func TestEveryErrorCodeIsExplained(t *testing.T) {
	explained := map[string]bool{}
	for _, e := range errorCodes() {
		explained[e.code] = false
	}
	use := func(code string) {
		if _, ok := explained[code]; !ok {
			t.Errorf("%s is answered and not explained in codes.go", code)
		}
		explained[code] = true
	}
	for _, c := range wireCodes() {
		use(c.code)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	connections, err := filepath.Glob("../resp/*.go") // a connection answers some by itself
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, connections...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:refusal\{|w\.Error\()"([A-Z]+)"`).FindAllStringSubmatch(string(text), -1) {
			use(m[1])
		}
	}
	for code, used := range explained {
		if !used {
			t.Errorf("%s is explained, and never answered", code)
		}
	}
}
