package commands

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exampleReplies are the replies to a command itself among its examples.
func exampleReplies(t *testing.T, c *command, proto string) (all []reply) {
	t.Helper()
	conn := newServer(t, nil).connect("")
	if c.name != "hello" {
		conn.do("HELLO", proto)
	}
	receipt, id := "", ""
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
			all = append(all, v)
			wire = rest
		}
	}
	return all
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
