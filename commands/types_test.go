package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/telemetry"
)

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
	for _, c := range everyCommand() {
		if c.Spec.Parse == nil && c.Spec.Local == nil {
			continue
		}
		kind := c.Spec.Returns
		for _, proto := range []string{"2", "3"} {
			for _, v := range exampleReplies(t, c, proto) {
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
	if texts < 5 {
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
	ask("LATENCY", "GRAPH", "commit")
	c.do("CONFIG", "SET", "latency-monitor-threshold", "0")
	c.do("LATENCY", "RESET")
	ask("LATENCY", "DOCTOR")
}
