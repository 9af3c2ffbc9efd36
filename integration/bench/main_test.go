package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/bench"
)

func TestEachBenchmarkHasItsFlagsAndHelp(t *testing.T) {
	for _, b := range benchmarks() {
		var help strings.Builder
		if _, err := parse([]string{b.name, "-bin", "elsewhere"}, &help); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
		if _, err := parse([]string{b.name, "-help"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "default "+fmt.Sprintf("%q", b.sync)) {
			t.Errorf("%s: %v, help:\n%s", b.name, err, help.String())
		}
		if _, err := parse([]string{b.name, "extra"}, &help); err == nil {
			t.Errorf("%s takes an argument", b.name)
		}
	}
	var help strings.Builder
	if _, err := parse([]string{"nosuch"}, &help); err == nil {
		t.Error("an unknown benchmark is taken")
	}
	for _, b := range benchmarks() {
		if !strings.Contains(help.String(), "  "+b.name) {
			t.Errorf("%s is not listed:\n%s", b.name, help.String())
		}
	}
}

func TestSidesTakeTurnsInReversedOrder(t *testing.T) {
	var got []string
	err := inTurns(3, []string{"a", "b"}, func(s string) error { got = append(got, s); return nil })
	if want := strings.Fields("a b b a a b"); err != nil || !slices.Equal(got, want) {
		t.Errorf("measured %q (%v), want %q", got, err, want)
	}
	if err := inTurns(0, []string{"a"}, func(string) error { return nil }); err == nil {
		t.Error("no rounds are measured, and that is no error")
	}
	failed := errors.New("it failed")
	if err := inTurns(2, []string{"a"}, func(string) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

// The median of the ratios differs from the ratio of the medians.
func TestAChangeIsTheMedianOfTheRatiosOfTheRounds(t *testing.T) {
	sideOf := func(rates ...float64) *side {
		s := &side{}
		for _, r := range rates {
			s.rounds = append(s.rounds, bench.Round{Rate: r})
		}
		return s
	}
	got := changed([]*side{sideOf(100, 200, 1000), sideOf(110, 100, 1200)}, func(r *bench.Round) float64 { return r.Rate })
	if got < 9.9 || got > 10.1 {
		t.Errorf("%+.1f %%, want +10.0 %%", got)
	}
}

func TestAPromiseThatWasNotMeasuredIsNeitherKeptNorMissed(t *testing.T) {
	for _, x := range []struct {
		c    comparison
		want string
	}{
		{comparison{what: "rate", seen: -9, most: 10, rate: true, ok: true}, "| rate | -9.0 % | > -10 % | yes |"},
		{comparison{what: "rate", seen: -11, most: 10, rate: true, ok: true}, "| rate | -11.0 % | > -10 % | no |"},
		{comparison{what: "cpu", seen: 11, most: 10, ok: true}, "| cpu | +11.0 % | < +10 % | no |"},
		{comparison{what: "cpu", most: 10}, "| cpu | not measured | < +10 % | ? |"},
	} {
		if got := x.c.row(); got != x.want {
			t.Errorf("got %s, want %s", got, x.want)
		}
	}
}
