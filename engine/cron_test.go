package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/cron"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// A message that would expire before it is ready would make every tick a missed one,
// whether the TTL is its own or the queue's.
func TestARecurringMessageThatWouldExpireBeforeItIsReadyIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("short", QueueOptions{Given: queueset.Given{queueset.TTL: 1_000}})
	w.queue("long", QueueOptions{Given: queueset.Given{queueset.TTL: 3_600_000}})
	w.queue("none", QueueOptions{})
	for _, c := range []struct {
		queue      string
		delay, ttl time.Duration
		ok         bool
	}{
		{"none", time.Hour, 0, true},
		{"none", 999 * time.Millisecond, time.Second, true}, {"none", time.Second, time.Second, false}, {"none", durationMax, time.Second, false},
		{"short", 999 * time.Millisecond, 0, true}, {"short", time.Second, 0, false}, {"short", time.Second, 2 * time.Second, true},
		{"long", time.Minute, time.Second, false}, {"none", durationMax, durationMax, false}, {"none", durationMax - 1e6, durationMax, true},
	} {
		cr := &Cron{Name: "c", Expression: "@every 1s", Message: Enqueue{Queue: c.queue, Delay: c.delay, TTL: c.ttl}}
		if err := w.PrepareCron(cr); err != nil {
			t.Fatal(err)
		}
		err := w.do(func(tx *Tx) error { return tx.SetCron(cr) })
		if c.ok && err != nil || !c.ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func (w *world) cronInfo(name string) CronInfo {
	w.t.Helper()
	var i CronInfo
	w.must(func(tx *Tx) error { i, _ = tx.Cron(name); return nil })
	return i
}

// tickOf returns the tick of a message from its header.
func tickOf(d *Delivery) time.Time {
	for _, h := range d.Headers() {
		if string(h.Name) == "fila-cron-at" {
			ms, _ := strconv.ParseInt(string(h.Value), 10, 64)
			return time.UnixMilli(ms)
		}
	}
	return time.Time{}
}

// drained leases and acks all messages and returns their ticks, in seconds from the start
// of the worlds.
func (w *world) drained(queue string) []int64 {
	w.t.Helper()
	var all []int64
	for {
		ds := w.lease(queue, 1000)
		if len(ds) == 0 {
			return all
		}
		for _, d := range ds {
			all = append(all, tickOf(d).Unix()-1_700_000_000)
			w.must(func(tx *Tx) error { _, err := tx.Ack(queue, []Receipt{d.Receipt}); return err })
		}
	}
}

func wantTicks(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("ticks at %v, want %v", got, want)
	}
}

func TestATickIsAMessage(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	priority := uint8(9)
	w.cron(Cron{Name: "m", Expression: "* * * * *", Message: Enqueue{
		Queue: "q", Key: "k", Meta: Meta{Weight: 3, Throttles: []string{"t"}}, Headers: []Header{{Name: []byte("a"), Value: []byte("b")}},
		Payload: []byte("hello"), Priority: &priority,
	}})
	w.Advance(39 * time.Second)
	wantTicks(t, w.drained("q"))
	w.Advance(time.Second)
	ds := w.lease("q", 9)
	if len(ds) != 1 {
		t.Fatalf("%d messages", len(ds))
	}
	d := ds[0]
	if string(d.Payload()) != "hello" || d.Key != "k" || d.Receipt.ID.Rank() != 0 {
		t.Errorf("%+v", d)
	}
	var headers []string
	for _, h := range d.Headers() {
		headers = append(headers, string(h.Name)+"="+string(h.Value))
	}
	if got := strings.Join(headers, " "); got != "a=b fila-cron=m fila-cron-at=1700000040000" {
		t.Errorf("headers %s", got)
	}
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
	w.Advance(3 * time.Minute)
	wantTicks(t, w.drained("q"), 100, 160, 220)
	i := w.cronInfo("m")
	if i.Fired != 4 || i.Missed != 0 || i.LastAt.Unix() != 1_700_000_220 || i.NextAt.Unix() != 1_700_000_280 || i.LastError != "" {
		t.Errorf("%+v", i)
	}
	var found bool
	w.must(func(tx *Tx) (err error) { found, err = tx.DeleteCron("m"); return err })
	w.Advance(time.Hour)
	wantTicks(t, w.drained("q"))
	if !found || w.cronInfo("m").Name != "" {
		t.Error("it is still there")
	}
}

// A delay of some seconds, by a restart or a slow disk, costs no tick under any rule.
func TestALateTickIsOnTimeForTenSeconds(t *testing.T) {
	for _, rule := range []CatchUp{CatchUpNone, CatchUpLast, CatchUpAll} {
		store := storage.NewMemory()
		w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
		w.queue("q", QueueOptions{})
		cr := minutely(rule)
		cr.Expression = "@every 2s"
		w.cron(cr)
		w.Advance(5 * time.Second)
		again := openWorld(t, store.Clone(), w.Now().Add(8*time.Second), nil)
		wantTicks(t, again.drained("q"), 2, 4, 6, 8, 10, 12)
		again.Advance(time.Second)
		wantTicks(t, again.drained("q"), 14)
	}
}

func TestCatchUp(t *testing.T) {
	for rule, want := range map[CatchUp][]int64{
		CatchUpNone: {280},
		CatchUpLast: {220, 280},
		CatchUpAll:  {100, 160, 220, 280},
	} {
		t.Run(rule.String(), func(t *testing.T) {
			store := storage.NewMemory()
			w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
			w.queue("q", QueueOptions{})
			w.cron(minutely(rule))
			w.Advance(time.Minute)
			wantTicks(t, w.drained("q"), 40)
			again := openWorld(t, store.Clone(), time.Unix(1_700_000_250, 0), nil)
			again.Advance(30 * time.Second)
			wantTicks(t, again.drained("q"), want...)
			if i := again.cronInfo("m"); i.Fired+i.Missed != 5 || i.Fired != uint64(len(want))+1 {
				t.Errorf("fired %d, missed %d", i.Fired, i.Missed)
			}
			var s Stats
			again.must(func(tx *Tx) error { s = tx.Stats(); return nil })
			if i := again.cronInfo("m"); s.Crons != 1 || s.Ticked != uint64(len(want)) || s.Missed != i.Missed {
				t.Errorf("since the start: %d entries, %d ticks, %d missed; the entry has missed %d", s.Crons, s.Ticked, s.Missed, i.Missed)
			}
		})
	}
}

// After years of absence missed ticks are enqueued in portions, up to the documented bound.
func TestCatchingUpIsBounded(t *testing.T) {
	const years = 3 * 365 * 24 * 3600
	for rule, want := range map[CatchUp]int{CatchUpNone: 11, CatchUpLast: 12, CatchUpAll: cron.MadeUpMax + 1 + 11} {
		for _, expression := range []string{"* * * * * *", "@every 1s"} {
			store := storage.NewMemory()
			w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
			w.queue("q", QueueOptions{})
			cr := minutely(rule)
			cr.Expression = expression
			w.cron(cr)
			again := openWorld(t, store.Clone(), time.Unix(1_700_000_000+years, 0), nil)
			got := again.drained("q")
			if len(got) != want || got[len(got)-1] != years || !slices.IsSorted(got) {
				t.Errorf("%s, %s: %d ticks, the last %d", rule, expression, len(got), got[len(got)-1])
			}
			if rule == CatchUpAll && (got[0] != 1 || got[cron.MadeUpMax] != years-11) {
				t.Errorf("%s, %s: from %d, then %d", rule, expression, got[0], got[cron.MadeUpMax])
			}
		}
	}
}

// Ten thousand entries that are due together, each with years of missed ticks, do not stall
// the loop: a turn processes a portion.
func TestATurnDoesAPortionOfTheCatchingUp(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	for i := range 100 {
		cr := minutely(CatchUpNone)
		cr.Name = fmt.Sprint("m", i)
		w.cron(cr)
	}
	c := newCore(DefaultConfig(), store)
	if err := c.recover(); err != nil {
		t.Fatal(err)
	}
	turns := 0
	for now := time.Unix(1_800_000_000, 0); ; turns++ {
		before := uint64(0)
		c.cron.Walk(0, 100, func(e *cron.Entry) { before += e.Record().Missed })
		c.turn(now, nil)
		after := uint64(0)
		c.cron.Walk(0, 100, func(e *cron.Entry) { after += e.Record().Missed })
		if after-before > 512+cron.CountMax {
			t.Fatalf("one turn passed over %d ticks", after-before)
		}
		if after == before {
			break
		}
	}
	if turns < 20 {
		t.Errorf("%d turns for %d entries", turns, 100)
	}
}

func TestAClockThatIsSetBackRepeatsNoTick(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.cron(minutely(CatchUpAll))
	w.Advance(time.Hour)
	n := len(w.drained("q"))
	again := openWorld(t, store.Clone(), w.Now().Add(-time.Hour), nil)
	again.Advance(time.Hour)
	wantTicks(t, again.drained("q"))
	again.Advance(time.Minute)
	wantTicks(t, again.drained("q"), 3640)
	if n != 60 {
		t.Errorf("%d ticks in the first hour", n)
	}
}

func TestAClockThatIsSetForwardFallsUnderTheRule(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.cron(minutely(CatchUpLast))
	w.now = w.now.Add(time.Hour) // in one step, without turns in between
	w.Do()
	wantTicks(t, w.drained("q"), 3580)
	w.Advance(time.Minute)
	wantTicks(t, w.drained("q"), 3640)
}

func TestARefusedTickIsMissed(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.MaxDepth: 1}})
	w.queue("other", QueueOptions{})
	w.cron(minutely(CatchUpAll))
	cr := minutely(CatchUpAll)
	cr.Name, cr.Message.Queue = "n", "other"
	w.cron(cr)
	w.Advance(3 * time.Minute)
	if i := w.cronInfo("m"); i.Fired != 1 || i.Missed != 2 || !strings.Contains(i.LastError, "full") || i.ErrorAt.Unix() != 1_700_000_160 {
		t.Errorf("a full queue: %+v", i)
	}
	if i := w.cronInfo("n"); i.Fired != 3 || i.Missed != 0 {
		t.Errorf("the other: %+v", i)
	}
	wantTicks(t, w.drained("q"), 40)
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) })
	w.Advance(time.Minute)
	if i := w.cronInfo("m"); i.Missed != 3 || !strings.Contains(i.LastError, "no such queue") {
		t.Errorf("a queue that is gone: %+v", i)
	}
	w.queue("q", QueueOptions{})
	w.Advance(time.Minute)
	wantTicks(t, w.drained("q"), 280)
}

// After a start the counts of a limited queue are not exact yet. Its ticks wait instead of
// being refused, and ticks of other queues go on.
func TestATickWaitsUntilItsLimitedQueueIsCounted(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	limit := uint64(10)
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.MaxDepth: limit}})
	w.queue("other", QueueOptions{})
	w.cron(minutely(CatchUpAll))
	for name, queue := range map[string]string{"n": "other", "deleted": "q", "moved": "q"} {
		cr := minutely(CatchUpAll)
		cr.Name, cr.Message.Queue = name, queue
		w.cron(cr)
	}
	w.core.openCensus()
	w.Advance(time.Minute)
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	wantTicks(t, w.drained("other"), 40)
	w.must(func(tx *Tx) error { _, err := tx.DeleteCron("deleted"); return err })
	moved := minutely(CatchUpAll)
	moved.Name, moved.Message.Queue = "moved", "other"
	w.cron(moved)
	w.Do()
	wantTicks(t, w.drained("other"), 40)
	if i := w.cronInfo("m"); i.Fired != 0 || i.Missed != 0 || i.LastError != "" {
		t.Errorf("before it is counted: %+v", i)
	}
	takeCensus(w.core.ops.census, w.post)
	w.Advance(time.Second)
	wantTicks(t, w.drained("q"), 40)
	w.Advance(time.Minute)
	wantTicks(t, w.drained("q"), 100)
	wantTicks(t, w.drained("other"), 100, 100)
}

// While the store takes no writes, no tick is lost or repeated.
func TestTicksWaitForTheStore(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.cron(minutely(CatchUpAll))
	store.FailCommits(errors.New("no space left"))
	w.Advance(3 * time.Minute)
	if w.core.health.failed == nil {
		t.Fatal("the loop has not noticed")
	}
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	w.Advance(time.Second)
	wantTicks(t, w.drained("q"), 40, 100, 160)
}

func TestTheHookOfTheQueueIsAsked(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Scripts = simScripts{} })
	w.queue("q", QueueOptions{})
	h, err := w.CompileScript(hook.Caller{}, hook.OnEnqueue, "-- on_enqueue")
	if err != nil {
		t.Fatal(err)
	}
	w.must(func(tx *Tx) error { return tx.LoadScript("q", h, "") })
	w.cron(Cron{Name: "m", Expression: "* * * * *", Message: Enqueue{Queue: "q", Key: "k", Payload: []byte("xx")}})
	w.Advance(time.Minute)
	if len(w.lease("q", 1)) != 1 {
		t.Fatal("no message")
	}
	var info KeyInfo
	w.must(func(tx *Tx) (err error) { info, err = tx.Key("q", "k"); return err })
	if info.Weight != 3 { // as simHook decides for two bytes
		t.Errorf("weight %d", info.Weight)
	}
}

func TestSettingAgainNeitherSkipsNorRepeats(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for range 30 {
		w.cron(minutely(CatchUpLast))
		w.Advance(10 * time.Second)
	}
	wantTicks(t, w.drained("q"), 40, 100, 160, 220, 280)
	every := minutely(CatchUpLast)
	every.Expression = "@every 25s"
	w.cron(every) // a new schedule starts now
	w.Advance(time.Minute)
	wantTicks(t, w.drained("q"), 325, 350)

	// An entry that is set during a round: the tick is made again, with the new content.
	w.Lazy = func() bool { return true }
	w.now = time.Unix(1_700_000_375, 0)
	w.Do()
	if w.core.cron.round == nil {
		t.Fatal("no tick is under way")
	}
	every.Message.Payload = []byte("new")
	if err := w.PrepareCron(&every); err != nil {
		t.Fatal(err)
	}
	w.Do(&Task{Call: callFunc(func(tx *Tx) error { return tx.SetCron(&every) })})
	w.Lazy = nil
	w.Do()
	if ds := w.lease("q", 9); payloads(ds) != "new" || tickOf(ds[0]).Unix() != 1_700_000_375 {
		t.Errorf("%s", payloads(ds))
	}
}

func TestCronRefusals(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Crons = 2 })
	w.queue("q", QueueOptions{})
	for name, change := range map[string]func(*Cron){
		"no name":      func(cr *Cron) { cr.Name = "" },
		"a long name":  func(cr *Cron) { cr.Name = strings.Repeat("n", 600) },
		"no times":     func(cr *Cron) { cr.Expression = "" },
		"a payload":    func(cr *Cron) { cr.Message.Payload = make([]byte, 17<<20) },
		"a long key":   func(cr *Cron) { cr.Message.Key = strings.Repeat("k", 600) },
		"many headers": func(cr *Cron) { cr.Message.Headers = make([]Header, 65) },
	} {
		cr := minutely(CatchUpLast)
		change(&cr)
		if err := w.PrepareCron(&cr); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooBig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	set := func(name, queue string) error {
		cr := minutely(CatchUpLast)
		cr.Name, cr.Message.Queue = name, queue
		if err := w.PrepareCron(&cr); err != nil {
			return err
		}
		return w.do(func(tx *Tx) error { return tx.SetCron(&cr) })
	}
	if err := set("a", "nowhere"); !errors.Is(err, ErrNoQueue) {
		t.Error(err)
	}
	w.queue("o", orderedQueue())
	for name, change := range map[string]func(*Enqueue){
		"DELAY": func(m *Enqueue) { m.Delay = time.Second }, "PRIORITY": func(m *Enqueue) { m.Priority = new(uint8(9)) },
	} {
		cr := minutely(CatchUpLast)
		change(&cr.Message)
		cr.Message.Queue = "o"
		if err := errors.Join(w.PrepareCron(&cr), w.do(func(tx *Tx) error { return tx.SetCron(&cr) })); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s for an ordered queue: %v", name, err)
		}
	}
	if err := errors.Join(set("a", "q"), set("b", "q"), set("a", "q")); err != nil {
		t.Error(err)
	}
	if err := set("c", "q"); !errors.Is(err, ErrInvalid) {
		t.Errorf("one too many: %v", err)
	}
}

// batchStore keeps all committed records.
type batchStore struct {
	*storage.Memory
	wrote   []string
	commits int
}

func (s *batchStore) Commit(b *storage.Batch, sync bool) error {
	s.commits++
	_ = b.Each(func(r storage.Record) error {
		s.wrote = append(s.wrote, fmt.Sprintf("%s %s large=%t sync=%t", r.Op, r.Family, len(r.Value) > 1000, sync))
		return nil
	})
	return s.Memory.Commit(b, sync)
}

// A tick durably writes its message, the record of its entry and the time, and nothing else.
func TestATickWritesThreeRecords(t *testing.T) {
	store := &batchStore{Memory: storage.NewMemory()}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	cr := minutely(CatchUpLast)
	cr.Message.Payload = make([]byte, 1<<20)
	w.cron(cr)
	w.core.ids.until = 1 << 62 // no renewal of the bound of ids
	store.wrote = nil
	w.Advance(time.Minute)
	if got := fmt.Sprint(store.wrote); got != "[put messages large=true sync=true put state large=false sync=true put state large=false sync=true]" {
		t.Error(got)
	}
}

// A recurring message whose zone is gone has no next tick, says why and is counted until it is set again or deleted.
func TestACronWhoseZoneIsGoneIsCounted(t *testing.T) {
	store := storage.NewMemory()
	var b storage.Batch
	for name, zone := range map[string]string{"fine": "", "gone": "Gone/Zone", "also": "Gone/Zone"} {
		set := storage.Cron{Queue: "q", Expression: "@daily", Zone: zone, NextAt: 1_700_003_600_000_000_000, SetAt: 1}
		b.Put(storage.State, storage.AppendStateKey(nil, storage.StateCron, name), set.Append(nil))
	}
	if err := store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	want := func(n int64) {
		t.Helper()
		w.must(func(tx *Tx) error {
			if got := tx.Stats().DeadCrons; got != n {
				t.Errorf("%d recurring messages without a next tick, want %d", got, n)
			}
			return nil
		})
	}
	want(2)
	if i := w.cronInfo("gone"); !i.NextAt.IsZero() || i.LastError == "" {
		t.Errorf("next at %v, error %q", i.NextAt, i.LastError)
	}
	w.queue("q", QueueOptions{})
	w.cron(Cron{Name: "gone", Expression: "@daily", Message: Enqueue{Queue: "q"}})
	want(1)
	w.must(func(tx *Tx) error { _, err := tx.DeleteCron("also"); return err })
	want(0)
}
