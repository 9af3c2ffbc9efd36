package history

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const visibility = 1000 * time.Millisecond

// calls builds a history in milliseconds. Each method adds a call that begins at the given time and is
// answered a millisecond later.
type calls struct{ History }

func at(ms int) Span {
	return Span{time.Duration(ms) * time.Millisecond, time.Duration(ms+1) * time.Millisecond}
}

func (t *calls) enqueue(ms int, tag string, change ...func(e *Enqueue)) *calls {
	e := Enqueue{Span: at(ms), Outcome: Done, Tag: tag, ID: "id-" + tag, Queue: "q", Key: "k"}
	for _, c := range change {
		c(&e)
	}
	t.Enqueues = append(t.Enqueues, e)
	return t
}

func delivery(ms int, tag string, fence uint64) Delivery {
	return Delivery{Tag: tag, ID: "id-" + tag, Fence: fence, Key: "k", Deliveries: 1, Until: time.Duration(ms)*time.Millisecond + visibility}
}

func (t *calls) lease(ms int, tag string, fence uint64, change ...func(d *Delivery)) *calls {
	d := delivery(ms, tag, fence)
	for _, c := range change {
		c(&d)
	}
	t.Leases = append(t.Leases, Lease{Span: at(ms), Outcome: Done, Queue: "q", Visibility: visibility, Got: []Delivery{d}})
	return t
}

func (t *calls) end(ms int, kind EndKind, tag string, fence uint64, change ...func(e *End)) *calls {
	e := End{Span: at(ms), Outcome: Done, Kind: kind, ID: "id-" + tag, Fence: fence}
	for _, c := range change {
		c(&e)
	}
	t.Ends = append(t.Ends, e)
	return t
}

func (t *calls) crash(ms int, power bool) *calls {
	t.Crashes = append(t.Crashes, Crash{At: at(ms).Call, Back: at(ms + 100).Call, Power: power})
	return t
}

func rules() Rules {
	return Rules{DedupWindow: 300 * time.Millisecond, LeaseLag: 5 * time.Millisecond, Late: 50 * time.Millisecond, Skew: 3 * time.Millisecond}
}

func outcome(o Outcome) func(e *End) { return func(e *End) { e.Outcome = o } }

func delayed(ms int) func(e *Enqueue) {
	return func(e *Enqueue) { e.Delay = time.Duration(ms) * time.Millisecond }
}

func lives(ms int) func(e *Enqueue) {
	return func(e *Enqueue) { e.TTL = time.Duration(ms) * time.Millisecond }
}

// named makes an enqueue with the dedup name "n" return the id of another tag.
func named(of string) func(e *Enqueue) {
	return func(e *Enqueue) { e.Dedup, e.ID = "n", "id-"+of }
}

func unanswered(e *Enqueue) { e.Outcome, e.ID = Unknown, "" }

// id makes a delivery carry the id of another enqueue's message.
func id(of string) func(d *Delivery) { return func(d *Delivery) { d.ID = "id-" + of } }

// dead adds a lease from the dead-letter queue.
func (t *calls) dead(ms int, tag string, fence uint64, change ...func(d *Delivery)) *calls {
	t.lease(ms, tag, fence, change...)
	t.Leases[len(t.Leases)-1].Queue = "q.dlq"
	return t
}

// exec adds an unanswered ack with the enqueue of another message.
func (t *calls) exec(ms int, tag string, fence uint64, with string) *calls {
	return t.end(ms, Ack, tag, fence, outcome(Unknown), func(e *End) { e.With = with }).enqueue(ms, with, unanswered)
}

// life is the normal life of a message.
func life() *calls { return new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1) }

// TestPlantedFaultsAreFound tests the checker: each planted fault, as clients would see it, is
// reported under the promise that it breaks.
func TestPlantedFaultsAreFound(t *testing.T) {
	for name, x := range map[string]struct {
		calls *calls
		rule  Rule
	}{
		"reply before commit": {new(calls).enqueue(0, "a").crash(2, false), Lost},
		"unsynced reply":      {new(calls).enqueue(0, "a").crash(2, true), Lost},
		"dropped ack":         {life().crash(30, false).lease(200, "a", 1<<32), Again},
		"unfenced receipt":    {new(calls).enqueue(0, "a").lease(10, "a", 1).lease(1020, "a", 2).end(1030, Ack, "a", 1), Fenced},
		"lost timer of a delay": {
			&calls{History{Log: new(calls).enqueue(0, "a", delayed(100)).crash(50, false).Log, Left: 1}}, Stuck,
		},
		"lost timer of a delay, as a loss":    {new(calls).enqueue(0, "a", delayed(100)).crash(50, false), Lost},
		"lost timer of a lease":               {new(calls).enqueue(0, "a").lease(10, "a", 1), Lost},
		"delay forgotten in a crash":          {new(calls).enqueue(0, "a", delayed(500)).crash(50, false).lease(200, "a", 1).end(210, Ack, "a", 1), Early},
		"delay of a nack not kept":            {life().end(15, Nack, "a", 1, func(e *End) { e.ReadyAt = at(300).Call }).lease(200, "a", 2).end(210, Ack, "a", 2), Early},
		"leased twice":                        {new(calls).enqueue(0, "a").lease(10, "a", 1).lease(500, "a", 2).end(510, Ack, "a", 2), TwoHeld},
		"leased twice across a crash":         {new(calls).enqueue(0, "a").lease(10, "a", 1).enqueue(50, "b").lease(60, "b", 1).end(61, Ack, "b", 1).crash(100, false).lease(300, "a", 2).end(510, Ack, "a", 2), TwoHeld},
		"extended and leased all the same":    {new(calls).enqueue(0, "a").lease(10, "a", 1).end(900, Extend, "a", 1, func(e *End) { e.Until = at(2000).Call }).lease(1500, "a", 2).end(1510, Ack, "a", 2), TwoHeld},
		"acked after its end":                 {new(calls).enqueue(0, "a").lease(10, "a", 1).end(1200, Ack, "a", 1), Fenced},
		"acked twice":                         {life().end(30, Ack, "a", 1), Fenced},
		"released, then acked":                {new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Release, "a", 1).end(30, Ack, "a", 1), Fenced},
		"the same receipt twice":              {life().lease(15, "a", 1), Receipts},
		"two ids":                             {life().lease(30, "a", 1, func(d *Delivery) { d.ID = "other" }), Corrupt},
		"one id for two":                      {life().enqueue(40, "b", func(e *Enqueue) { e.ID = "id-a" }), Corrupt},
		"nobody's":                            {life().lease(40, "b", 1), Corrupt},
		"refused and delivered":               {new(calls).enqueue(0, "a", func(e *Enqueue) { e.Outcome = Refused }).lease(10, "a", 1).end(20, Ack, "a", 1), Corrupt},
		"another key":                         {life().lease(15, "a", 2, func(d *Delivery) { d.Key = "l" }), Corrupt},
		"overtaken":                           {life().enqueue(1, "b").lease(5, "b", 1).end(9, Ack, "b", 1), Order},
		"delivered, not acked, and then lost": {new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1, outcome(Refused)), Lost},
		"delivered after its time":            {new(calls).enqueue(0, "a", lives(100)).lease(105, "a", 1).end(110, Ack, "a", 1), Lives},
		"dead before its time":                {new(calls).enqueue(0, "a", lives(100)).dead(95, "a", 1).end(110, Ack, "a", 1), Lives},
		"dead before the time of its name":    {new(calls).enqueue(0, "b", named("a"), unanswered, lives(100)).enqueue(50, "a", named("a"), lives(100)).dead(95, "b", 1, id("a")).end(110, Ack, "a", 1), Lives},
		"dead without a reason":               {new(calls).enqueue(0, "a").dead(95, "a", 1).end(110, Ack, "a", 1), Lives},
		"gone after its time":                 {new(calls).enqueue(0, "a", lives(100)).lease(50, "a", 1), Lost},
		"a name stands for two":               {new(calls).enqueue(0, "a", named("a")).enqueue(250, "b", named("b")).lease(260, "a", 1).lease(261, "b", 1).end(270, Ack, "a", 1).end(270, Ack, "b", 1), Dedup},
		"a name was forgotten in a crash":     {new(calls).enqueue(0, "a", named("a")).crash(50, false).enqueue(200, "b", named("b")).lease(260, "a", 1).lease(261, "b", 1).end(270, Ack, "a", 1).end(270, Ack, "b", 1), Dedup},
		"a name lasts too long":               {new(calls).enqueue(0, "a", named("a")).lease(10, "a", 1).end(20, Ack, "a", 1).enqueue(310, "b", named("a")), Dedup},
		"a name without a message":            {new(calls).enqueue(0, "a", named("a")).enqueue(10, "b", named("a")), Lost},
		"two payloads":                        {new(calls).enqueue(0, "a", named("a")).enqueue(10, "b", named("a")).lease(20, "a", 1).lease(1030, "b", 2, id("a")).end(1040, Ack, "a", 2), Corrupt},
		"enqueued and not acked":              {new(calls).enqueue(0, "a").lease(10, "a", 1).exec(20, "a", 1, "b").crash(30, false).lease(1020, "a", 2).end(1030, Ack, "a", 2).lease(1031, "b", 1).end(1040, Ack, "b", 1), Torn},
		"acked and not enqueued":              {new(calls).enqueue(0, "a").lease(10, "a", 1).exec(20, "a", 1, "b").crash(30, false), Torn},
		"acked, answered, and not enqueued":   {life().enqueue(20, "b"), Lost},
	} {
		v := Check(&x.calls.History, rules())
		if v.Counts[x.rule] == 0 {
			t.Errorf("%s: not found under %q: %v", name, x.rule, v.Breaches)
		}
	}
}

func TestWhatMayHappenIsNoBreach(t *testing.T) {
	for name, tl := range map[string]*calls{
		"a life":                           life(),
		"an enqueue without an answer":     new(calls).enqueue(0, "a", func(e *Enqueue) { e.Outcome, e.ID = Unknown, "" }).crash(1, false),
		"it happened all the same":         new(calls).enqueue(0, "a", func(e *Enqueue) { e.Outcome, e.ID = Unknown, "" }).crash(1, false).lease(200, "a", 1).end(210, Ack, "a", 1),
		"an ack without an answer":         new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1, outcome(Unknown)).crash(21, false),
		"it did not happen":                new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Ack, "a", 1, outcome(Unknown)).crash(20, false).lease(200, "a", 2).end(210, Ack, "a", 2),
		"the lease ran out":                new(calls).enqueue(0, "a").lease(10, "a", 1).lease(1010, "a", 2).end(1020, Ack, "a", 2),
		"a young lease was forgotten":      new(calls).enqueue(0, "a").lease(10, "a", 1).crash(14, false).lease(200, "a", 2).end(210, Ack, "a", 2),
		"a late ack was refused":           new(calls).enqueue(0, "a").lease(10, "a", 1).lease(1010, "a", 2).end(1015, Ack, "a", 1, outcome(Refused)).end(1020, Ack, "a", 2),
		"released":                         new(calls).enqueue(0, "a").lease(10, "a", 1).end(20, Release, "a", 1).lease(30, "a", 2).end(40, Ack, "a", 2),
		"extended":                         new(calls).enqueue(0, "a").lease(10, "a", 1).end(500, Extend, "a", 1, func(e *End) { e.Until = at(2000).Call }).end(1900, Ack, "a", 1),
		"a retry behind a younger one":     life().enqueue(1, "b").lease(30, "b", 1).end(40, Ack, "b", 1).enqueue(2, "c").lease(41, "c", 1).end(42, Nack, "c", 1).lease(50, "c", 2).end(51, Ack, "c", 2),
		"an old one was out before":        life().enqueue(1, "b").lease(5, "b", 1).end(9, Ack, "b", 1).tap(func(t *calls) { t.Leases[0].Got[0].Deliveries = 2 }),
		"at its time":                      new(calls).enqueue(0, "a", delayed(100)).lease(101, "a", 1).end(110, Ack, "a", 1),
		"two leases at the same time":      new(calls).enqueue(0, "a").enqueue(2, "b").lease(10, "b", 1).lease(10, "a", 1).end(20, Ack, "a", 1).end(21, Ack, "b", 1),
		"a power cut forgets a lease":      new(calls).enqueue(0, "a").lease(10, "a", 1).crash(500, true).lease(700, "a", 2).end(710, Ack, "a", 2),
		"another queue's order is its own": life().enqueue(1, "b", func(e *Enqueue) { e.Key = "l" }).lease(5, "b", 1, func(d *Delivery) { d.Key = "l" }).end(9, Ack, "b", 1),
		"in its time":                      new(calls).enqueue(0, "a", lives(100)).lease(99, "a", 1).end(300, Ack, "a", 1),
		"dead at its time":                 new(calls).enqueue(0, "a", lives(100)).lease(50, "a", 1).dead(1060, "a", 2).end(1070, Ack, "a", 2),
		"dead at the time of its first":    new(calls).enqueue(0, "b", named("a"), unanswered, lives(100)).enqueue(50, "a", named("a"), lives(100)).dead(110, "b", 1, id("a")).end(120, Ack, "a", 1),
		"dead while it waits for a retry":  new(calls).enqueue(0, "a", lives(100)).lease(10, "a", 1).end(15, Nack, "a", 1, func(e *End) { e.ReadyAt = at(300).Call }).dead(120, "a", 2).end(130, Ack, "a", 2),
		"given up for good":                new(calls).enqueue(0, "a", lives(5000)).lease(10, "a", 1).end(15, Nack, "a", 1).dead(30, "a", 2).end(40, Ack, "a", 2),
		"late, but who knows how late":     new(calls).enqueue(0, "a", lives(100), unanswered).lease(120, "a", 1).end(130, Ack, "a", 1),
		"a name twice":                     new(calls).enqueue(0, "a", named("a")).enqueue(10, "b", named("a")).lease(20, "a", 1).end(30, Ack, "a", 1),
		"the second is told first":         new(calls).enqueue(0, "a", named("b")).enqueue(0, "b", named("b")).lease(20, "b", 1).end(30, Ack, "b", 1),
		"the first was never told":         new(calls).enqueue(0, "a", named(""), unanswered).enqueue(10, "b", named("a")).lease(20, "a", 1).end(30, Ack, "a", 1),
		"a name again after the window":    new(calls).enqueue(0, "a", named("a")).enqueue(290, "b", named("a")).enqueue(310, "c", named("c")).lease(320, "a", 1).lease(321, "c", 1).end(330, Ack, "a", 1).end(331, Ack, "c", 1),
		"a transaction was executed":       new(calls).enqueue(0, "a").lease(10, "a", 1).exec(20, "a", 1, "b").crash(30, false).lease(200, "b", 1).end(210, Ack, "b", 1),
		"a transaction was not":            new(calls).enqueue(0, "a").lease(10, "a", 1).exec(20, "a", 1, "b").crash(30, false).lease(1020, "a", 2).end(1030, Ack, "a", 2),
		"a transaction came too late":      new(calls).enqueue(0, "a").lease(10, "a", 1).exec(1020, "a", 1, "b").crash(1030, false).lease(1200, "a", 2).end(1210, Ack, "a", 2).lease(1220, "b", 1).end(1230, Ack, "b", 1),
	} {
		if v := Check(&tl.History, rules()); !v.OK() {
			t.Errorf("%s: %v", name, v.Breaches)
		}
	}
}

func (t *calls) tap(f func(t *calls)) *calls { f(t); return t }

// What a power cut may take depends on the mode, and is always the end of the log.
func TestWhatAPowerCutMayTake(t *testing.T) {
	interval := rules()
	interval.Sync, interval.Interval = SyncInterval, 100*time.Millisecond
	never := rules()
	never.Sync = SyncNever
	soon := new(calls).enqueue(900, "a").crash(1000, true)
	long := new(calls).enqueue(100, "a").crash(1000, true)
	middle := new(calls).enqueue(900, "a").enqueue(950, "b").crash(1000, true).lease(1200, "b", 1).end(1210, Ack, "b", 1)
	ack := new(calls).enqueue(0, "a").lease(10, "a", 1).end(950, Ack, "a", 1).crash(1000, true).lease(1200, "a", 1<<32).end(1210, Ack, "a", 1<<32)
	unsynced := new(calls).enqueue(0, "a").lease(10, "a", 1).enqueue(200, "b").crash(500, true).lease(700, "a", 2).end(710, Ack, "a", 2).lease(711, "b", 2).end(712, Ack, "b", 2)
	for _, x := range []struct {
		calls *calls
		mode  Rules
		rule  Rule // empty: no breach
	}{
		{soon, rules(), Lost}, {soon, interval, ""}, {soon, never, ""},
		{long, rules(), Lost}, {long, interval, Lost}, {long, never, ""},
		{middle, interval, Hole}, {middle, never, Hole},
		{ack, rules(), Again}, {ack, interval, ""}, {ack, never, ""},
		{unsynced, rules(), TwoHeld}, {unsynced, interval, ""},
	} {
		v := Check(&x.calls.History, x.mode)
		if x.rule == "" && !v.OK() || x.rule != "" && v.Counts[x.rule] == 0 {
			t.Errorf("mode %d: want %q, got %v for %+v", x.mode.Sync, x.rule, v.Breaches, x.calls.Log)
		}
		if x.rule == "" && v.Excused == 0 && x.calls != ack && x.calls != unsynced {
			t.Errorf("mode %d: the loss was not counted", x.mode.Sync)
		}
	}
}

// A fault that breaks everything must not flood the report.
func TestBreachesAreCountedAndAFewShown(t *testing.T) {
	tl := new(calls)
	for i := range 100 {
		tl.enqueue(i, fmt.Sprint("m", i))
	}
	v := Check(&tl.History, rules())
	if v.Counts[Lost] != 100 || len(v.Breaches) != breachesMax || !strings.Contains(v.Breaches[0].String(), "m0") {
		t.Errorf("%d counted, %d shown: %v", v.Counts[Lost], len(v.Breaches), v.Breaches)
	}
}
