package history

import (
	"strings"
	"testing"
	"time"
)

// publish adds a publish to the queues q and r.
func (t *calls) publish(ms int, tag string, change ...func(e *Enqueue)) *calls {
	for _, queue := range []string{"q", "r"} {
		t.enqueue(ms, tag+"@"+queue, append([]func(e *Enqueue){func(e *Enqueue) { e.Queue, e.Publish = queue, tag }}, change...)...)
	}
	return t
}

// copyOf takes and acks the copy of a publish from a queue.
func (t *calls) copyOf(ms int, tag, queue string, change ...func(d *Delivery)) *calls {
	t.lease(ms, tag+"@"+queue, 1, change...)
	l := &t.Leases[len(t.Leases)-1]
	l.Queue = queue
	return t.end(ms+2, Ack, strings.TrimPrefix(l.Got[0].ID, "id-"), 1)
}

// without makes the copy in a queue one that the answer does not name.
func without(queue string) func(e *Enqueue) {
	return func(e *Enqueue) {
		if e.Queue == queue {
			e.ID = ""
		}
	}
}

// attempt makes an enqueue one with a deduplication id, which was answered with the message of
// another attempt.
func attempt(of string) func(e *Enqueue) {
	return func(e *Enqueue) {
		if e.Dedup = "n"; e.Outcome == Done {
			e.ID = "id-" + of + "@" + e.Queue
		}
	}
}

func optional(e *Enqueue) { e.Optional = e.Queue == "r" }

func refused(e *Enqueue) { e.Outcome, e.ID = Refused, "" }

// ask adds a request for the result of a message that waits for up to a second.
func (t *calls) ask(ms int, tag, status string, by uint64, change ...func(a *Ask)) *calls {
	a := Ask{Span: at(ms), Outcome: Done, Queue: "q", ID: "id-" + tag, Block: time.Second, Status: status, By: by}
	for _, c := range change {
		c(&a)
	}
	t.Asks = append(t.Asks, a)
	return t
}

// lasts makes an ask one that is answered after a time.
func lasts(ms int) func(a *Ask) {
	return func(a *Ask) { a.Return = a.Call + time.Duration(ms)*time.Millisecond }
}

func noAnswer(a *Ask) { a.Outcome, a.Status, a.By = Unknown, "", 0 }

func valued(e *End) { e.Valued = true }

func forGood(e *End) { e.Dead = true }

// valuedLife is a life that ends with a value.
func valuedLife() *calls {
	return new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1, valued)
}

// died is a life that ends in the dead-letter queue.
func died() *calls {
	return new(calls).enqueue(0, "a").lease(10, "a", 1).end(15, Nack, "a", 1, forGood).dead(30, "a", 2)
}

// pair is two messages of a key of an ordered queue.
func pair() *calls { return new(calls).enqueue(0, "a").enqueue(2, "b") }

func orderedRules() Rules {
	r := rules()
	r.Ordered = map[string]bool{"q": true}
	return r
}

// TestPlantedFaultsOfPublishesResultsAndOrderAreFound: as TestPlantedFaultsAreFound.
func TestPlantedFaultsOfPublishesResultsAndOrderAreFound(t *testing.T) {
	for name, x := range map[string]struct {
		calls *calls
		rule  Rule
	}{
		"half a publish, unanswered":       {new(calls).publish(0, "*p", unanswered).copyOf(10, "*p", "q"), Half},
		"half a publish, answered":         {new(calls).publish(0, "*p").copyOf(10, "*p", "q"), Lost},
		"an answer without a queue":        {new(calls).publish(0, "*p", without("r")).copyOf(10, "*p", "q"), Half},
		"refused, and stored in one queue": {new(calls).publish(0, "*p", refused).copyOf(10, "*p", "q"), Corrupt},
		"optional, and not the other one":  {new(calls).publish(0, "*p", unanswered, optional).copyOf(10, "*p", "r").publish(100, "*o", unanswered).copyOf(110, "*o", "q"), Half},
		"a second attempt that completes the first": {
			new(calls).publish(0, "*p.1", unanswered, attempt("*p.1")).publish(50, "*p.2", func(e *Enqueue) {
				attempt("*p.2")(e)
				if e.Queue == "q" {
					attempt("*p.1")(e)
				}
			}).copyOf(60, "*p.1", "q").copyOf(70, "*p.2", "r"), Half,
		},
		"a younger one goes first":                {pair().lease(5, "b", 1).end(9, Ack, "b", 1).lease(10, "a", 1).end(12, Ack, "a", 1), Serial},
		"both out":                                {pair().lease(10, "a", 1).lease(12, "b", 1).end(20, Ack, "a", 1).end(30, Ack, "b", 1), Serial},
		"overtaken while it waits for a retry":    {pair().lease(10, "a", 1).end(12, Nack, "a", 1, func(e *End) { e.ReadyAt = at(100).Call }).lease(20, "b", 1).end(25, Ack, "b", 1).lease(110, "a", 2).end(120, Ack, "a", 2), Serial},
		"overtaken after a release":               {pair().lease(10, "a", 1).end(12, Release, "a", 1).lease(20, "b", 1).end(25, Ack, "b", 1).lease(30, "a", 2).end(40, Ack, "a", 2), Serial},
		"overtaken after its lease":               {pair().lease(10, "a", 1).lease(1020, "b", 1).end(1025, Ack, "b", 1).lease(1030, "a", 2).end(1040, Ack, "a", 2), Serial},
		"overtaken before its life ends":          {new(calls).enqueue(0, "a", lives(500)).enqueue(2, "b").lease(10, "b", 1).end(12, Ack, "b", 1).dead(510, "a", 1).end(520, Ack, "a", 1), Serial},
		"brought back by a crash":                 {pair().lease(10, "a", 1).end(12, Ack, "a", 1, outcome(Unknown)).lease(20, "b", 1).crash(30, false).lease(200, "a", 2).end(210, Ack, "a", 2).end(220, Ack, "b", 1), Serial},
		"a value that no client has sent":         {life().ask(30, "a", IsDone, 7), Result},
		"the value of an ack that was refused":    {valuedLife().end(15, Ack, "a", 9, valued, outcome(Refused)).lease(14, "a", 9).ask(30, "a", IsDone, 9), Result},
		"done before it is acked":                 {valuedLife().ask(12, "a", IsDone, 1), Result},
		"done without its value":                  {valuedLife().ask(30, "a", IsDone, 0), Result},
		"done, and delivered again":               {new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1, valued, outcome(Unknown)).ask(21, "a", IsDone, 1).crash(30, false).lease(200, "a", 2).end(210, Ack, "a", 2), Again},
		"dead without a reason, as it is told":    {life().ask(5, "a", IsDead, 0), Result},
		"acked, and dead":                         {new(calls).enqueue(0, "a", lives(15)).lease(10, "a", 1).end(20, Ack, "a", 1).ask(30, "a", IsDead, 0), Result},
		"dead, and delivered again":               {died().end(40, Ack, "a", 2).ask(16, "a", IsDead, 0).lease(20, "a", 3), Result},
		"acked, and pending":                      {valuedLife().ask(30, "a", IsPending, 0), Result},
		"dead, and pending":                       {died().end(40, Ack, "a", 2).ask(35, "a", IsPending, 0), Result},
		"done, then pending":                      {new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1, outcome(Unknown)).ask(30, "a", IsDone, 0).ask(40, "a", IsPending, 0), Result},
		"done, then another value":                {new(calls).enqueue(0, "a").lease(10, "a", 1).lease(1010, "a", 2).end(1020, Ack, "a", 1, valued, outcome(Unknown)).end(1020, Ack, "a", 2, valued, outcome(Unknown)).ask(1030, "a", IsDone, 1).ask(1040, "a", IsDone, 2), Result},
		"a value that is not known any more":      {valuedLife().ask(30, "a", "", 0), Result},
		"a message that is not known":             {life().ask(5, "a", "", 0), Result},
		"forgotten in a crash":                    {valuedLife().crash(30, false).ask(200, "a", "", 0), Result},
		"it waits, and is not answered":           {valuedLife().ask(5, "a", IsPending, 0, lasts(1001)), Answered},
		"no answer without a crash":               {valuedLife().ask(5, "a", "", 0, noAnswer, lasts(3000)), Answered},
		"never answered, though it asks till end": {valuedLife().crash(25, false).ask(22, "a", "", 0, noAnswer, lasts(10)), Answered},
	} {
		v := Check(&x.calls.History, orderedRules())
		if v.Counts[x.rule] == 0 {
			t.Errorf("%s: not found under %q: %v", name, x.rule, v.Breaches)
		}
	}
}

func TestWhatMayHappenToPublishesResultsAndOrderIsNoBreach(t *testing.T) {
	for name, tl := range map[string]*calls{
		"a publish":                              new(calls).publish(0, "*p").copyOf(10, "*p", "q").copyOf(15, "*p", "r"),
		"unanswered, and in all":                 new(calls).publish(0, "*p", unanswered).copyOf(10, "*p", "q").copyOf(15, "*p", "r"),
		"unanswered, and in none":                new(calls).publish(0, "*p", unanswered).crash(1, false),
		"a queue leaves itself out":              new(calls).publish(0, "*p", unanswered, optional).copyOf(10, "*p", "q"),
		"the second attempt":                     new(calls).publish(0, "*p.1", unanswered, attempt("")).publish(50, "*p.2", attempt("*p.2")).copyOf(60, "*p.2", "q").copyOf(70, "*p.2", "r"),
		"the first attempt":                      new(calls).publish(0, "*p.1", unanswered, attempt("")).publish(50, "*p.2", attempt("*p.1")).copyOf(60, "*p.1", "q").copyOf(70, "*p.1", "r"),
		"one by one":                             pair().lease(10, "a", 1).end(12, Ack, "a", 1).lease(15, "b", 1).end(20, Ack, "b", 1),
		"after retries":                          pair().lease(10, "a", 1).end(12, Nack, "a", 1).lease(15, "a", 2).end(17, Ack, "a", 2).lease(18, "b", 1).end(20, Ack, "b", 1),
		"after its death":                        pair().lease(10, "a", 1).end(12, Nack, "a", 1, forGood).lease(15, "b", 1).end(17, Ack, "b", 1).dead(20, "a", 2).end(30, Ack, "a", 2),
		"after its life":                         new(calls).enqueue(0, "a", lives(50)).enqueue(2, "b").lease(60, "b", 1).end(62, Ack, "b", 1).dead(70, "a", 1).end(80, Ack, "a", 1),
		"an ack without an answer":               pair().lease(10, "a", 1).end(12, Ack, "a", 1, outcome(Unknown)).lease(15, "b", 1).end(20, Ack, "b", 1),
		"one that was perhaps not stored":        new(calls).enqueue(0, "a", unanswered).enqueue(2, "b").lease(15, "b", 1).end(20, Ack, "b", 1),
		"another key":                            new(calls).enqueue(0, "a").enqueue(2, "b", func(e *Enqueue) { e.Key = "l" }).lease(5, "b", 1, func(d *Delivery) { d.Key = "l" }).lease(6, "a", 1).end(20, Ack, "a", 1).end(20, Ack, "b", 1),
		"done":                                   valuedLife().ask(5, "a", IsPending, 0).ask(6, "a", IsDone, 1, lasts(15)).ask(30, "a", IsDone, 1),
		"done without a value":                   life().ask(6, "a", IsDone, 0, lasts(15)).ask(30, "a", "", 0),
		"done, though the ack had no answer":     new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1, valued, outcome(Unknown)).crash(21, false).ask(200, "a", IsDone, 1),
		"dead":                                   died().end(40, Ack, "a", 2).ask(12, "a", IsDead, 0, lasts(10)).ask(35, "a", IsDead, 0).ask(50, "a", "", 0),
		"its time to live is over":               new(calls).enqueue(0, "a", lives(50)).ask(10, "a", IsDead, 0, lasts(45)).dead(60, "a", 1).end(70, Ack, "a", 1),
		"the time is over":                       new(calls).enqueue(0, "a").ask(5, "a", IsPending, 0, lasts(1001)).lease(1010, "a", 1).end(1020, Ack, "a", 1),
		"a broker that stops":                    valuedLife().ask(5, "a", IsPending, 0, lasts(14)),
		"the connection ends, and it asks again": valuedLife().crash(25, false).ask(22, "a", "", 0, noAnswer, lasts(10)).ask(200, "a", IsDone, 1),
	} {
		if v := Check(&tl.History, orderedRules()); !v.OK() {
			t.Errorf("%s: %v", name, v.Breaches)
		}
	}
}

// A power cut may undo what was not synced, also of answers that were true.
func TestAPowerCutMayUndoResultsAndOrder(t *testing.T) {
	lazy := orderedRules()
	lazy.Sync = SyncNever
	for name, x := range map[string]struct {
		calls *calls
		rule  Rule
	}{
		"a result":              {new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1, valued).ask(25, "a", IsDone, 1).crash(30, true).ask(200, "a", IsPending, 0).lease(210, "a", 2).end(220, Ack, "a", 2, valued), Result},
		"an ack":                {pair().lease(10, "a", 1).end(12, Ack, "a", 1).lease(20, "b", 1).end(22, Ack, "b", 1).crash(30, true).lease(200, "a", 2).end(210, Ack, "a", 2), Serial},
		"a publish":             {new(calls).publish(0, "*p", unanswered).lease(10, "*p@q", 1).crash(30, true), Half},
		"an unanswered enqueue": {new(calls).enqueue(0, "a", unanswered).lease(10, "a", 1).crash(30, true).ask(200, "a", "", 0), Result},
		"an older message":      {new(calls).enqueue(0, "a").crash(30, true).enqueue(190, "b").lease(200, "b", 1).end(210, Ack, "b", 1), Serial},
		"what a client waits for": {new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1, valued).crash(30, true).
			ask(200, "a", IsPending, 0, lasts(1001)).lease(1300, "a", 2).end(1310, Ack, "a", 2, valued), Result},
	} {
		if v := Check(&x.calls.History, lazy); !v.OK() {
			t.Errorf("%s, not synced: %v", name, v.Breaches)
		}
		if v := Check(&x.calls.History, orderedRules()); v.Counts[x.rule] == 0 {
			t.Errorf("%s, synced: not found under %q: %v", name, x.rule, v.Breaches)
		}
	}
}
