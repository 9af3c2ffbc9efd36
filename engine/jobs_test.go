package engine

import (
	"slices"
	"testing"

	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/internal/hook"
)

// A slow job delays only jobs of its kind: a round runs up to 64 hooks, scripts may be slow, and whole queues wait for
// windows.
func TestJobsAreGroupedSoThatNoneDelaysAnotherKind(t *testing.T) {
	decision := func(queue string) job { return &verdict{msg: hook.Message{Queue: queue}} }
	first, second := &page{}, &page{}
	window, due := &read{}, &dueRead{}
	round, long, short := &cronRound{}, &lookup{work: lookupLong}, &lookup{work: lookupLong - 1}
	a, b, also := decision("a"), decision("b"), decision("a")
	searches := &page{Page: search.Page{Filter: &Filter{}}}
	w := Work{jobs: []job{first, round, a, window, long, short, searches, b, due, second, also}}
	want := [][]job{{round}, {long}, {searches}, {a, also}, {b}, {window, due}, {first, short, second}}
	groups := w.Jobs()
	if len(groups) != len(want) {
		t.Errorf("%d groups, want %d", len(groups), len(want))
	}
	for _, jobs := range want {
		i := slices.IndexFunc(groups, func(g Jobs) bool { return slices.Equal(g.jobs, jobs) })
		if i < 0 {
			t.Fatalf("no group has %v", jobs)
		}
		if g := groups[i]; g.Search != (g.jobs[0] == searches) || g.reads != (g.jobs[0] == window) {
			t.Errorf("%+v is taken for something else", g)
		}
	}
}
