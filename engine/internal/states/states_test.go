package states

import (
	"strings"
	"testing"
	"time"
)

const now = int64(1_700_000_000_000_000_000)

func TestWhatNothingStopsLacksAConsumerOrItsTurn(t *testing.T) {
	for want, q := range map[State]Queue{
		Ready: {Waiting: 1, Leased: 1}, Busy: {Leased: 2, Retry: 1, Asked: now}, NoConsumer: {Leased: 1, Retry: 1, Asked: now - pollTime},
	} {
		if q.Now = now; q.Free() != want {
			t.Errorf("%+v is %s, want %s", q, q.Free(), want)
		}
	}
	if q := (Queue{Now: now, Asked: now - pollTime + 1}); q.Free() != Ready {
		t.Error("a consumer that has just asked comes again")
	}
}

func TestAQueueHasTheStatesOfItsReadyMessages(t *testing.T) {
	var by ByState
	by[Throttled].Add(1, 5, now, "a")
	for _, x := range []struct {
		name string
		q    Queue
		by   *ByState
		want State
	}{
		{"no message", Queue{Counted: true}, &by, Empty},
		{"one that is leased", Queue{Counted: true, Total: 1, Leased: 1}, &by, Leased},
		{"one that is tried again", Queue{Counted: true, Total: 1, Leased: 1, Retry: 1}, &by, Delayed},
		{"one that is delayed", Queue{Counted: true, Total: 1, Delayed: 1}, nil, Delayed},
		{"ready ones that are stopped", Queue{Counted: true, Total: 5}, &by, Throttled},
		{"ready ones of which nothing is known", Queue{Counted: true, Total: 5}, nil, NoConsumer},
		{"a pause", Queue{Counted: true, Total: 5, Paused: true}, &by, Paused},
		{"no pause but of its messages, which are not counted", Queue{Leased: 1}, &by, Throttled},
	} {
		if f := x.q.Facts(x.by); f.State() != x.want {
			t.Errorf("%s: %s, want %s", x.name, f.State(), x.want)
		}
	}
}

func TestAReasonSaysWhatIsStoppedAndTheOldestExample(t *testing.T) {
	var by ByState
	by[Throttled].Add(1, 1, now-int64(time.Minute), "a")
	by[NoCredit].Add(2, 2, now-int64(time.Hour), "b")
	by[Busy].Add(1, 300, now, "c")
	q := Queue{Now: now, Counted: true, Total: 310, Leased: 1, Holding: 1, Newest: now - int64(2*time.Second)}
	key, in, ok := q.Longest(&by, Throttled)
	if key != "a" || in != Throttled || !ok {
		t.Errorf("the example is %q, %s, %v", key, in, ok)
	}
	if key, in, _ := q.Longest(&by, Busy); key != "a" || in != Throttled {
		t.Errorf("the example of a state that stops nothing is %q, %s", key, in)
	}
	free := "1 consumer holds 1 lease of the queue, and none waits; the shortest is out for 2s"
	want := "less than 1 % of 303 ready messages are stopped: 1 by the rates of throttles (1 key), 2 by budgets (2 keys); key \"b\" waits longest, for 1h0m0s: why; of the others, " + free
	if got := q.Reason(&by, NoCredit, "why"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := q.Reason(nil, Busy, ""); got != free {
		t.Error(got)
	}
	var all ByState
	all[Paused].Add(1, 1, 0, "")
	if _, _, ok := q.Longest(&all, Paused); ok || q.Reason(&all, Paused, "") != "all of 1 ready message are stopped: 1 by pauses of keys (1 key)" {
		t.Errorf("%v: %s", ok, q.Reason(&all, Paused, ""))
	}
	q.Paused = true
	if _, _, ok := q.Longest(&all, Paused); ok || !strings.Contains(q.Reason(&all, Paused, ""), "FILA.QUEUE RESUME") {
		t.Errorf("of a queue that is paused: %s", q.Reason(&all, Paused, ""))
	}
	for s := range State(States) {
		if q.KeyReason(s, 2) == "" || s.String() == "" {
			t.Errorf("state %d has no words", s)
		}
	}
}
