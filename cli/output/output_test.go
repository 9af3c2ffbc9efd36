package output

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rivo/uniseg"

	"github.com/faisca/fila/internal/client"
)

var rewrite = flag.Bool("rewrite", false, "regenerate golden files")

func queue(name string, ready int64) client.Map {
	return client.Map{
		{Name: "name", Value: name},
		{Name: "ready", Value: ready},
		{Name: "oldest_ms", Value: ready * 61_000},
		{Name: "created_at", Value: int64(1_767_225_600_000)},
		{Name: "dlq", Value: nil},
		{Name: "share", Value: 0.125},
		{Name: "throttle", Value: []any{"a", "b"}},
		{Name: "headers", Value: client.Map{{Name: "x", Value: "1"}}},
	}
}

func TestEachFormHasItsGoldenFile(t *testing.T) {
	for _, form := range Forms() {
		var b strings.Builder
		p := New(&b, Options{Form: Form(form), Zone: time.UTC})
		rows := p.Rows("name", "ready", "oldest_ms", "created_at", "dlq", "share")
		rows.Add(queue("orders", 12))
		rows.Add(queue("caf\u00e9 \x1b[31mred\x1b[0m\tand\n"+strings.Repeat("long", 20), 0))
		rows.Close("no queues")
		p.Say("an empty list")
		p.Rows("name").Close("no queues")
		p.Fields(queue("orders", 1))
		p.Value(client.Map{{Name: "a", Value: []any{int64(1), client.Map{{Name: "b", Value: "c"}}}}, {Name: "\xff", Value: nil}})
		p.Raw("raw text\nof lines")
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", form+".txt")
		if *rewrite {
			if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != b.String() {
			t.Errorf("%s is\n%s\nand not what %s says (%v); -args -rewrite writes it again", form, b.String(), file, err)
		}
	}
}

func TestHeadingsAreBoldInColourOnly(t *testing.T) {
	for color, want := range map[bool]string{true: "\x1b[1mNAME\x1b[0m\na\n", false: "NAME\na\n"} {
		var b strings.Builder
		p := New(&b, Options{Form: Table, Color: color})
		rows := p.Rows("name")
		rows.Add(client.Map{{Name: "name", Value: "a"}})
		rows.Close("")
		if err := p.Flush(); err != nil || b.String() != want {
			t.Errorf("%t: %q, %v", color, b.String(), err)
		}
	}
}

func TestATableIsWrittenInPortions(t *testing.T) {
	var b strings.Builder
	p := New(&b, Options{Form: Table})
	rows := p.Rows("name")
	for range 2*pendingMax + 1 {
		rows.Add(client.Map{{Name: "name", Value: "a"}})
		if len(rows.pending) >= pendingMax {
			t.Fatalf("%d rows are pending", len(rows.pending))
		}
	}
	rows.Close("")
	if err := p.Flush(); err != nil || strings.Count(b.String(), "\n") != 2*pendingMax+2 || strings.Count(b.String(), "NAME") != 1 || rows.Written() != 2*pendingMax+1 {
		t.Errorf("%d lines, %v", strings.Count(b.String(), "\n"), err)
	}
}

func TestNothingReachesATerminalUnescaped(t *testing.T) {
	for text, want := range map[string]string{
		"tenant-7":      "tenant-7",
		"grün":          "grün",
		"\x1b[2J":       `\x1b[2J`,
		"\u009b2J":      `\u{9b}2J`,
		"a\xffb":        `a\xffb`,
		"a\u202eb":      `a\u{202e}b`,
		"\ufffd":        "\ufffd",
		`a\b`:           `a\\b`,
		"a\r\n\tb\x7f":  `a\r\n\tb\x7f`,
		"line\u2028sep": `line\u{2028}sep`,
	} {
		if got := Escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestAnErrorIsOnePrintableLine(t *testing.T) {
	if got, want := Line("two\nlines \x1b[2J of \"\\x\""), `two lines \x1b[2J of "\x"`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 350 * time.Millisecond: "350ms", time.Second: "1s", 4200 * time.Millisecond: "4.2s", 200 * time.Second: "3m20s", time.Minute: "1m",
		5*time.Hour + 10*time.Minute: "5h10m", 75 * time.Hour: "3d3h", -time.Second: "-1s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestAClippedCellIsAsWideAsItMayBe(t *testing.T) {
	for text, want := range map[string]string{"abcd": "abcd", "abcde": "abc…", "日本語": "日…", "日本": "日本"} {
		if got := clip(text, 4); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAnErrorOfWritingIsReturned(t *testing.T) {
	p := New(full{}, Options{Form: JSON})
	p.Fields(queue("orders", 1))
	if err := p.Flush(); err == nil {
		t.Error("it was silently lost")
	}
}

func TestNoLineOfATableIsWiderThanTheTerminal(t *testing.T) {
	reason := "40 % of 200 ready messages are stopped: 80 by the rates of throttles (2 keys)"
	for width := 30; width < 200; width++ {
		var b strings.Builder
		p := New(&b, Options{Form: Table, Width: width})
		rows := p.Rows("name", "state", "reason")
		rows.Add(client.Map{{Name: "name", Value: strings.Repeat("orders-", 20)}, {Name: "state", Value: "throttled"}, {Name: "reason", Value: reason}})
		rows.Close("")
		p.Fields(client.Map{{Name: "reason", Value: reason}, {Name: "日本", Value: strings.Repeat("日本", 40)}})
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d cells on a terminal of %d: %q", n, width, line)
			}
		}
		if words := strings.Fields(b.String()); width > 160 && !strings.Contains(strings.Join(words, " "), reason) {
			t.Errorf("the reason is cut where there is room for it:\n%s", b.String())
		}
	}
}

// On a narrow terminal, optional columns are left out and named, so that the others can be read.
func TestOptionalColumnsAreLeftOutWhereTheyHaveNoRoom(t *testing.T) {
	table := func(width int, form Form) string {
		var b strings.Builder
		p := New(&b, Options{Form: form, Width: width})
		rows := p.Rows("name", "keys?", "dead_letters??", "paused_in??", "state")
		rows.Add(client.Map{{Name: "name", Value: "orders-of-acme"}, {Name: "keys", Value: int64(1)}, {Name: "dead_letters", Value: int64(2)}, {Name: "paused_in", Value: int64(3)}, {Name: "state", Value: "throttled"}})
		rows.Close("")
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	all := "NAME            KEYS  DEAD_LETTERS  PAUSED_IN  STATE\norders-of-acme  1     2             3          throttled\n"
	for width, want := range map[int]string{
		0:  all,
		56: all,
		45: "NAME            KEYS  DEAD_LETTERS  STATE\norders-of-acme  1     2             throttled\nnot shown, the terminal is too narrow:\nPAUSED_IN\n",
		32: "NAME            KEYS  STATE\norders-of-acme  1     throttled\nnot shown, the terminal is too\nnarrow: DEAD_LETTERS, PAUSED_IN\n",
		25: "NAME            STATE\norders-of-acme  throttled\nnot shown, the terminal\nis too narrow: KEYS,\nDEAD_LETTERS, PAUSED_IN\n",
	} {
		if got := table(width, Table); got != want {
			t.Errorf("%d cells wide:\n%s\nwant:\n%s", width, got, want)
		}
	}
	if got, want := table(25, Plain), "orders-of-acme\t1\t2\t3\tthrottled\n"; got != want {
		t.Errorf("plain: %q, want %q", got, want)
	}
}

// Ids and times are no use when cut: other columns are cut first, down to six cells each.
func TestIdsAndTimesAreNotCut(t *testing.T) {
	const id = "01a22828-c767-7cb2-a33d-70b857cb4c4b"
	for width, whole := range map[int]bool{200: true, 80: true, 74: true, 60: false} {
		var b strings.Builder
		p := New(&b, Options{Form: Table, Width: width, Zone: time.UTC})
		rows := p.Rows("id", "at", "error")
		rows.Add(client.Map{{Name: "id", Value: id}, {Name: "at", Value: int64(1_796_016_600_000)}, {Name: "error", Value: strings.Repeat("refused ", 20)}})
		rows.Close("")
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), id) && strings.Contains(b.String(), "2026-11-30 05:30:00"); got != whole {
			t.Errorf("%d cells wide, whole is %t, want %t:\n%s", width, got, whole, b.String())
		}
		for line := range strings.Lines(b.String()) {
			if n := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d cells on a terminal of %d: %q", n, width, line)
			}
		}
	}
}

func TestListsAndSumsAreWrittenForPeople(t *testing.T) {
	p := New(io.Discard, Options{Form: Table, Zone: time.UTC})
	for _, c := range []struct {
		name  string
		value any
		want  string
	}{
		{"upcoming", []any{int64(1_796_016_600_000), int64(1_796_103_000_000)}, "2026-11-30 05:30:00, 2026-12-01 05:30:00"},
		{"queues", client.Map{{Name: "orders", Value: int64(120)}, {Name: "mails", Value: int64(3)}}, "orders (120), mails (3)"},
		{"5m", "0.45824817", "0.4582"},
		{"all", "4", "4"},
		{"velocity", "-0.00102132373751", "-0.00102/s"},
	} {
		if got := p.Human(c.name, c.value); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestATextIsBrokenBetweenWords(t *testing.T) {
	for text, want := range map[string]string{
		"":               "",
		"a b c":          "a b c",
		"abc def ghi":    "abc|def|ghi",
		"abcdefgh ij":    "abcde|fgh|ij",
		"日本語 a":          "日本|語 a",
		"ab cd ef gh ij": "ab cd|ef gh|ij",
	} {
		if got := strings.Join(Wrap(text, 5), "|"); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
