package remote

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rivo/uniseg"

	"github.com/faisca/fila/internal/client"
)

// momentsOf returns moments of a queue, a minute apart: it enqueues 60 messages more in each minute than in the one before.
func momentsOf(minutes int) (moments []client.Map) {
	enqueued := int64(-10_000) // of before a start
	for i := range int64(minutes + 1) {
		enqueued += i * 60
		moments = append(moments, client.Map{
			{Name: "at", Value: 1_767_225_600_000 + i*60_000}, {Name: "enqueued", Value: enqueued}, {Name: "delivered", Value: int64(0)},
			{Name: "acked", Value: int64(0)}, {Name: "nacked", Value: i * 30}, {Name: "expired", Value: i * 30},
			{Name: "ready", Value: i % 4}, {Name: "delayed", Value: int64(0)}, {Name: "leased", Value: int64(7)}, {Name: "dead", Value: int64(0)},
		})
	}
	return moments
}

func TestAHistoryIsDrawnInTheWidthOfTheTerminal(t *testing.T) {
	for _, width := range []int{60, 80, 300} {
		lines := drawHistory(momentsOf(8), queueLines(), width, time.UTC)
		for i, line := range lines {
			if w := uniseg.StringWidth(line); w > width || i < len(lines)-1 && w != uniseg.StringWidth(lines[0]) {
				t.Errorf("%d cells of %d: %q", w, width, line)
			}
		}
	}
	got := drawHistory(momentsOf(8), queueLines(), 60, time.UTC)
	want := []string{
		"NOW  MOST",
		"enqueued  ▁▁▁▁▁▂▂▂▂▂▃▃▃▃▃▄▄▄▄▄▅▅▅▅▅▆▆▆▆▆▇▇▇▇▇█  8/s   8/s",
		"delivered   0/s   0/s",
		"acked   0/s   0/s",
		"failed  █████  1/s   1/s",
		"leased  ███  7     7",
		"2026-01-01 00:00  00:08",
	}
	for _, w := range want {
		words := strings.Fields(w)
		if !slices.ContainsFunc(got, func(line string) bool { return slices.Equal(squeezed(line), squeezed(w)) && len(words) > 0 }) {
			t.Errorf("no line %q in\n%s", w, strings.Join(got, "\n"))
		}
	}
}

// squeezed are the words of a line, with each run of one mark as one.
func squeezed(line string) (words []string) {
	for w := range strings.FieldsSeq(line) {
		if strings.ContainsAny(w, "▁▂▃▄▅▆▇█") {
			w = string(slices.Compact([]rune(w)))
		}
		words = append(words, w)
	}
	return words
}

// The moments of an hour with a start in it are a minute apart, then ten seconds: a cell has the greatest of its time.
func TestMomentsOfDifferentLengthsKeepTheirPlaces(t *testing.T) {
	at := func(second, ready int64) client.Map {
		return client.Map{{Name: "at", Value: second * 1000}, {Name: "ready", Value: ready}}
	}
	moments := []client.Map{at(0, 0), at(60, 8), at(70, 0), at(80, 4), at(120, 0)}
	l := plotted{level: "ready", show: whole}
	values := []float64{}
	for i := range moments[1:] {
		values = append(values, l.between(moments[i], moments[i+1]))
	}
	if got := blocks(moments, values, 12); got != "██████ ▄    " {
		t.Errorf("%q", got)
	}
	if got := blocks(moments, values, 3); got != "██ " && got != "█▄ " {
		t.Errorf("%q", got)
	}
}
