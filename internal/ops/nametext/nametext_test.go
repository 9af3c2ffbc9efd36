package nametext

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDifferentNamesStayDifferent(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	parts := []string{"a", `\`, "x", "f", "\xff", "5", "c", "é", "\xc3", "\uFFFD", `\x`, `\x5c`, "\n"}
	names := map[string]string{}
	for range 200_000 {
		var b strings.Builder
		for range rng.IntN(5) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		name := b.String()
		text := Of(name, math.MaxInt)
		if !utf8.ValidString(text) {
			t.Fatalf("%q is written %q", name, text)
		}
		if other, known := names[text]; known && other != name {
			t.Fatalf("%q and %q are both written %q", name, other, text)
		}
		names[text] = name
	}
}

func TestWhatIsTextStaysAsItIs(t *testing.T) {
	for name, want := range map[string]string{
		"orders": "orders", "größe": "größe", "\ufffd": "\ufffd", "tab\there": "tab\there", `a\b`: `a\b`,
		"bad\xff": `bad\xff`, `bad\xff`: `bad\x5cxff`, "\xc3": `\xc3`,
	} {
		if got := Of(name, math.MaxInt); got != want {
			t.Errorf("%q is written %q, want %q", name, got, want)
		}
	}
}

func TestATextIsBoundedBetweenCharacters(t *testing.T) {
	const most = 1 << 10
	for _, in := range []string{strings.Repeat("x", most), strings.Repeat("x", most+1), strings.Repeat("ü", most), strings.Repeat("\xff", most)} {
		if got := Of(in, most); len(got) > most || len(got) < most-3 || !utf8.ValidString(got) {
			t.Errorf("%d bytes become %d", len(in), len(got))
		}
	}
}
