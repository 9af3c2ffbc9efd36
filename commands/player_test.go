package commands

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// player plays one script.
type player struct {
	t      *testing.T
	server scripted
	ids    []string
	out    strings.Builder
}

func playScript(t *testing.T, text string, start func(change func(*Config)) scripted) string {
	t.Helper()
	p := &player{t: t}
	password := ""
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if rest, ok := strings.CutPrefix(lines[0], "password "); ok {
		password = rest
		p.out.WriteString(lines[0] + "\n")
		lines = lines[1:]
	}
	p.server = start(func(c *Config) {
		c.Password, c.SlowAfter, c.SlowMax, c.LogLevel = password, time.Minute, 128, &testLevel{"info"}
	})
	for _, line := range lines {
		p.play(line)
	}
	return p.out.String()
}

// testLevel is the level of a log that is not there.
type testLevel struct{ name string }

func (l *testLevel) Get() string      { return l.name }
func (l *testLevel) Set(level string) { l.name = level }

func prompt() *regexp.Regexp { return regexp.MustCompile(`^([a-z]?)([<>]) ?(.*)$`) }

func (p *player) play(line string) {
	m := prompt().FindStringSubmatch(line)
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case len(m) > 2 && m[2] == ">":
		p.out.WriteString(line + "\n")
		args, err := splitLine(p.unmask(m[3]))
		if err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
		c := p.server.talk(m[1])
		c.send(args)
		p.show(c, "(waiting)")
	case m != nil:
		p.out.WriteString(line + "\n")
		p.server.settle()
		p.show(p.server.talk(m[1]), "(nothing)")
	case line == "" || line[0] == '#':
		p.out.WriteString(line + "\n")
	case word == "advance":
		p.out.WriteString(line + "\n")
		d, err := time.ParseDuration(rest)
		if err != nil {
			p.t.Fatal(err)
		}
		p.server.pass(d)
		p.server.settle()
	case word == "close":
		p.out.WriteString(line + "\n")
		p.server.talk(rest).gone()
		p.server.settle()
	case line == "the store fails":
		p.out.WriteString(line + "\n")
		p.server.fail(errors.New("no space left on device"))
	case line == "the store works":
		p.out.WriteString(line + "\n")
		p.server.fail(nil)
		// anything else was a reply: it is written anew
	}
}

func (p *player) show(c talker, nothing string) {
	wire := c.received()
	switch {
	case wire != "":
		p.out.WriteString(p.mask(printed(p.t, wire)) + "\n")
	case !c.ended():
		p.out.WriteString(nothing + "\n")
	}
	if c.ended() {
		p.out.WriteString("(closed)\n")
	}
}

func uuid() *regexp.Regexp {
	return regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
}

// mask gives every id in text its short name, and takes out what a script has
// used, which no two runs agree on.
func (p *player) mask(text string) string {
	text = usage().ReplaceAllString(text, "$1<n>")
	return uuid().ReplaceAllStringFunc(text, func(id string) string {
		for i, known := range p.ids {
			if known == id {
				return fmt.Sprintf("<id%d>", i+1)
			}
		}
		p.ids = append(p.ids, id)
		return fmt.Sprintf("<id%d>", len(p.ids))
	})
}

// usage finds the figures of time and memory in what redis-cli prints.
func usage() *regexp.Regexp {
	return regexp.MustCompile(`("(?:\w+_us|instructions|memory_bytes)"\n *\d+\) \(integer\) )\d+`)
}

// unmask puts the ids back.
func (p *player) unmask(text string) string {
	for i, id := range p.ids {
		text = strings.ReplaceAll(text, fmt.Sprintf("<id%d>", i+1), id)
	}
	return text
}

// splitLine splits a line into arguments as redis-cli does: words, and strings
// in double quotes with escapes.
func splitLine(line string) ([]string, error) {
	var args []string
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		if line[0] != '"' {
			word, rest, _ := strings.Cut(line, " ")
			args, line = append(args, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, err
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		args, line = append(args, word), line[len(quoted):]
	}
	return args, nil
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		at := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return "(end)"
		}
		if at(w) != at(g) {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, at(w), at(g))
		}
	}
	return "no difference"
}
