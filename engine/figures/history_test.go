package figures

import (
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/timeline"
)

// Steps that no turn has looked at have what the first turn after them finds; a queue that was created
// later begins then, and a queue may come twice in a step.
func TestMomentsAreWhatTheCountsWere(t *testing.T) {
	var a All
	var h History
	old, late := new(Queue), new(Queue)
	a.Enter(old, "")
	record := func(now int64, queues ...*Queue) {
		if !h.Due(now) {
			t.Fatalf("nothing is due at %d", now)
		}
		h.Begin(now, &a)
		for _, q := range append(queues, queues...) {
			h.Record(q, now, nil)
			q.Count(Enqueued, 1) // after its moment
		}
		h.Finish()
	}
	const step = int64(timeline.Length)
	at := 1000 * step
	record(at, old)
	if h.Due(at+step-1) || !h.Due(at+step) {
		t.Error("the next step is not due at its beginning")
	}
	a.Enter(late, "")
	created := at + 2*step
	record(at+3*step, old, late)
	var enqueued []uint64
	for i, m := range h.Of(old, 1, 60) {
		if !m.At.Equal(time.Unix(0, at+int64(i)*step)) {
			t.Errorf("moment %d is at %v", i, m.At)
		}
		enqueued = append(enqueued, m.Enqueued)
	}
	if len(enqueued) != 4 || enqueued[0] != 0 || enqueued[1] != 2 || enqueued[3] != 2 {
		t.Errorf("%v", enqueued)
	}
	if list := h.Of(late, created, 60); len(list) != 2 || list[1].Enqueued != 0 {
		t.Errorf("of a queue that came later: %+v", list)
	}
	if list := h.All(&a, 60); len(list) != 4 || list[0].Enqueued != 0 || list[3].Enqueued != 2 {
		t.Errorf("of all: %+v", list)
	}
	if list := new(History).All(&a, 60); list != nil {
		t.Errorf("before the first step: %+v", list)
	}
}

func TestMoreMessagesThanFitAreTheMostThatDo(t *testing.T) {
	n := Numbers{Flow{Enqueued: 1<<40 + 7}, ByStatus{Ready: 1 << 40, Delayed: -1, Leased: 1<<32 - 1}}
	v := n.values()
	n.Enqueued += 1<<32 - 1
	if got, want := v.numbers(n), (Numbers{Flow{Enqueued: 1<<40 + 7}, ByStatus{Ready: 1<<32 - 1, Leased: 1<<32 - 1}}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
