package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/storetest"
)

func (w *world) signal(subject, name string, v float64) {
	w.t.Helper()
	w.must(func(tx *Tx) error { return tx.AddSignal(&SignalAdd{Subject: subject, Name: name, Value: v}) })
}

// all returns the sum that never fades; -1 if there is no such signal.
func (w *world) all(subject, name string) float64 {
	w.t.Helper()
	sum := -1.0
	w.must(func(tx *Tx) error {
		list, err := tx.Signals(&Signals{Subject: subject, Name: name})
		for i := range list {
			for _, v := range list[i].Sums() {
				sum = v
			}
		}
		return err
	})
	return sum
}

func TestAnAdditionIsInTheStoreBeforeItsReply(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.signal("acme", "pages", 3)
	w.signal("acme", "pages", 4)
	again := openWorld(t, store.Clone(), w.Now(), nil)
	if got := again.all("acme", "pages"); got != 7 {
		t.Errorf("after a crash there are %v", got)
	}
	w.must(func(tx *Tx) error { _, err := tx.DeleteSignals("acme", ""); return err })
	if got := storetest.Signals(t, store); got != "" {
		t.Errorf("the store still has %s", got)
	}
}

func TestWhatIsRecordedIsWrittenByTheCheckpoint(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), func(c *Config) { c.SignalCheckpoint = 10 * time.Second })
	w.queue("q", recording())
	w.enqueue("q", "acme", "a")
	if got := storetest.Signals(t, store); got != "" {
		t.Errorf("at once the store has %s", got)
	}
	w.Advance(9999 * time.Millisecond)
	if got := storetest.Signals(t, store); got != "" {
		t.Errorf("before the checkpoint the store has %s", got)
	}
	w.Advance(time.Millisecond)
	if got := storetest.Signals(t, store); got != "acme/enqueued" {
		t.Errorf("after the checkpoint the store has %q", got)
	}
	if at := w.core.signals.next(w.core); at != never {
		t.Errorf("nothing is to be written, and the next checkpoint is at %d", at)
	}
	if got := openWorld(t, store.Clone(), w.Now(), nil).all("acme", "enqueued"); got != 1 {
		t.Errorf("after a crash there are %v", got)
	}
}

func TestARecordIsCommittedWithASyncAtTheEndOfACheckpoint(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", recording())
	w.enqueue("q", "acme", "a")
	w.Advance(10 * time.Second)
	if got := openWorld(t, store.CloneSynced(), w.Now(), nil).all("acme", "enqueued"); got != 1 {
		t.Errorf("after a power loss there are %v", got)
	}
}

func TestAnOrderlyStopLosesNothing(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", recording())
	for i := range 200 {
		w.enqueue("q", fmt.Sprint("tenant-", i), "a")
	}
	w.core.drain()
	if !w.core.hasUnfinished() {
		t.Error("the engine may stop before all is written")
	}
	w.Do()
	if w.core.hasUnfinished() {
		t.Error("the stop does not end")
	}
	again := openWorld(t, store.Clone(), w.Now(), nil)
	for i := range 200 {
		if got := again.all(fmt.Sprint("tenant-", i), "enqueued"); got != 1 {
			t.Fatalf("tenant %d has %v", i, got)
		}
	}
}

// A lease may expire while the engine stops. A checkpoint may be due later, for signals that have
// been removed since.
func TestAnAdditionDuringAStopIsWrittenAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	c := w.core
	c.signals.add(c, "acme", "gone", 1)
	c.signals.Delete("acme", "gone", c.out.writes(c.now))
	c.drain()
	c.signals.add(c, "acme", "failed", 1)
	if !c.hasUnfinished() || c.signals.next(c) > c.now {
		t.Errorf("the stop waits %v for a checkpoint", time.Duration(c.signals.next(c)-c.now))
	}
	w.Do()
	if c.hasUnfinished() {
		t.Error("the stop does not end")
	}
}

func TestSignalsFadeWhileTheBrokerIsDown(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.signal("acme", "pages", 1000)
	first := func(w *world) (v float64) {
		v, err := w.Snapshot().View(w.Now()).Signal("acme", "pages", "1m")
		if err != nil {
			t.Error(err)
		}
		return v
	}
	later := openWorld(t, store.Clone(), w.Now().Add(time.Minute), nil)
	if got := first(later); math.Abs(got-1000/math.E) > 1e-6 {
		t.Errorf("a minute later there are %v", got)
	}
	earlier := openWorld(t, store.Clone(), w.Now().Add(-time.Hour), nil)
	if got := first(earlier); math.Abs(got-1000) > 1e-6 {
		t.Errorf("with the clock set back there are %v", got)
	}
}

// Each subject of a message counts once: its fairness key and its throttle keys.
func TestEachEventIsRecordedForEachSubject(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", recording())
	w.queue("off", QueueOptions{})
	enqueue := func(queue string) {
		req := &Enqueue{Queue: queue, Key: "acme", Meta: Meta{Throttles: []string{"x", "acme", "x"}}, Payload: []byte("a")}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	}
	for range 4 {
		enqueue("q")
	}
	enqueue("off")
	ds := w.lease("q", 4)
	w.Advance(2500 * time.Microsecond)
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[0].Receipt}); return err })
	w.must(func(tx *Tx) error {
		_, err := tx.Nack(&Nack{Queue: "q", Receipt: ds[1].Receipt, Delay: time.Hour})
		return err
	})
	w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{ds[2].Receipt}); return err })
	check := func(want map[string]float64) {
		t.Helper()
		for name, n := range want {
			for _, subject := range []string{"acme", "x"} {
				if got := w.all(subject, name); got != n {
					t.Errorf("%s of %s is %v, want %v", name, subject, got, n)
				}
			}
		}
	}
	check(map[string]float64{"enqueued": 4, "acked": 1, "failed": 1, "work_ms": 5, "used": -1})
	w.Advance(30*time.Second - 2500*time.Microsecond) // the fourth lease expires
	check(map[string]float64{"enqueued": 4, "acked": 1, "failed": 2, "work_ms": 30_005})
	ds = w.lease("off", 1)
	w.must(func(tx *Tx) error { _, err := tx.Ack("off", []Receipt{ds[0].Receipt}); return err })
	check(map[string]float64{"acked": 1})
}

func TestMoreSignalsThanTheLimitPushOutTheOldest(t *testing.T) {
	store := storage.NewMemory()
	limited := func(n int) func(*Config) { return func(c *Config) { c.Limits.Signals = n } }
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), limited(3))
	for name := range strings.FieldsSeq("a b c a d") {
		w.Advance(time.Second)
		w.signal("s", name, 1)
	}
	if got := storetest.Signals(t, store); got != "s/a s/c s/d" {
		t.Errorf("the store has %s", got)
	}
	var st Stats
	w.must(func(tx *Tx) error { st = tx.Stats(); return nil })
	if st.Signals != 3 || st.SignalsEvicted != 1 {
		t.Errorf("%d signals, %d evicted", st.Signals, st.SignalsEvicted)
	}
	lower := openWorld(t, store, w.Now(), limited(1))
	lower.Do()
	if got := storetest.Signals(t, store); got != "s/d" {
		t.Errorf("with a lower limit the store has %s", got)
	}
	lower.must(func(tx *Tx) error { st = tx.Stats(); return nil })
	if st.Signals != 1 || st.SignalsEvicted != 2 {
		t.Errorf("with a lower limit %d signals, %d evicted", st.Signals, st.SignalsEvicted)
	}
}

func TestASubjectWithVeryManySignalsIsReadInSlices(t *testing.T) {
	w := newWorld(t, nil)
	const n = 3 * turnUnits
	for i := range n {
		w.signal("s", fmt.Sprintf("name-%05d", i), 1)
	}
	w.signal("t", "name", 1)
	req := &Signals{Subject: "s"}
	var list []SignalInfo
	task := &Task{Call: callFunc(func(tx *Tx) (err error) { list, err = tx.Signals(req); return err })}
	turns := w.core.health.counters.turns
	for w.Do(task); !task.Done(); {
		w.Do()
	}
	if len(list) != n || list[0].Name != "name-00000" || list[n-1].Name != fmt.Sprintf("name-%05d", n-1) {
		t.Fatalf("%d signals", len(list))
	}
	if took := w.core.health.counters.turns - turns; took < 5 {
		t.Errorf("they were read in %d turns", took)
	}
	deleted := 0
	task = &Task{Call: callFunc(func(tx *Tx) (err error) { deleted, err = tx.DeleteSignals("s", ""); return err })}
	turns = w.core.health.counters.turns
	for w.Do(task); !task.Done(); {
		w.Do()
	}
	if took := w.core.health.counters.turns - turns; deleted != n || took < 5 || w.core.signals.Len() != 1 {
		t.Errorf("%d deleted in %d turns, %d are left", deleted, took, w.core.signals.Len())
	}
}

// A checkpoint of many signals is written in slices, and each of them is written once.
func TestACheckpointIsWrittenInSlices(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", recording())
	const n = 3000
	for i := range n {
		w.enqueue("q", fmt.Sprint("tenant-", i), "a")
	}
	w.now = w.now.Add(10 * time.Second)
	commits := w.core.out.committed
	for turns := 0; w.core.signals.Inside().Unwritten() > 0; turns++ {
		before := w.core.signals.Inside().Unwritten()
		w.core.turn(w.now, nil)
		if wrote := before - w.core.signals.Inside().Unwritten(); wrote > turnUnits/2 {
			t.Fatalf("%d signals were written in one turn", wrote)
		}
		if w.Do(); turns > 100 {
			t.Fatal("the checkpoint does not end")
		}
	}
	w.Do()
	if got := len(strings.Fields(storetest.Signals(t, store))); got != n {
		t.Errorf("%d signals are stored", got)
	}
	if took := w.core.out.committed - commits; took < 3 {
		t.Errorf("they were written in %d batches", took)
	}
}

func TestAFailedCommitTakesTheUnwrittenOnly(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", recording())
	w.enqueue("q", "acme", "a")
	w.signal("acme", "pages", 5)
	store.FailCommits(errors.New("the disk is gone"))
	if err := w.do(func(tx *Tx) error { return tx.AddSignal(&SignalAdd{Subject: "acme", Name: "pages", Value: 1}) }); !errors.Is(err, ErrMisconf) {
		t.Errorf("an addition that cannot be written ended with %v", err)
	}
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	if pages, enqueued := w.all("acme", "pages"), w.all("acme", "enqueued"); pages != 5 || enqueued != -1 {
		t.Errorf("%v pages and %v enqueued are left", pages, enqueued)
	}
}

func TestImpossibleRecordsOfSignalsAreRefused(t *testing.T) {
	key := storage.AppendSignalKey(nil, "acme", "failed")
	good := storage.Signal{At: 1, All: 2}
	if err := storage.CheckSignal(key, good.Append(nil)); err != nil {
		t.Error(err)
	}
	for _, bad := range []storage.Signal{
		{At: -1}, {All: math.NaN()}, {All: math.Inf(1)}, {Windows: [storage.SignalWindows]storage.SignalWindow{{LengthMs: 1, Sum: math.Inf(-1)}}},
	} {
		if err := storage.CheckSignal(key, bad.Append(nil)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := storage.CheckSignal([]byte{0}, good.Append(nil)); !errors.Is(err, storage.ErrCorrupt) {
		t.Error(err)
	}
}

// signalHook notes what each of its calls sees of a signal.
type signalHook struct {
	simHook
	window string
	seen   *[]float64
}

func (h signalHook) OnEnqueue(_ time.Time, msg *hook.Message, view hook.View, _ hook.Bounds) (hook.EnqueueDecision, error) {
	v, err := view.Signal(msg.Key, "failed", h.window)
	*h.seen = append(*h.seen, v)
	return hook.EnqueueDecision{}, err
}

func (h signalHook) OnFailure(_ time.Time, msg *hook.Message, view hook.View, _ hook.Bounds) (hook.FailureDecision, error) {
	v, err := view.Signal(msg.Key, "failed", h.window)
	*h.seen = append(*h.seen, v)
	return hook.FailureDecision{Action: hook.FailureRetry, Delay: new(time.Duration(0))}, err
}

// signalScripts loads such hooks; the source is the window.
type signalScripts struct{ seen *[]float64 }

func (s signalScripts) Load(_ hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	return signalHook{simHook{kind}, source, s.seen}, nil
}

func (s signalScripts) Restore(kind hook.Kind, source string) (hook.Hook, error) {
	return s.Load(hook.Caller{}, kind, source)
}

// Hooks see all that was recorded before, in on_failure without the failure at hand, whether or not
// a checkpoint has written it.
func TestHooksSeeSignals(t *testing.T) {
	var seen []float64
	w := openWorld(t, storage.NewMemory(), time.Unix(1_700_000_000, 0), func(c *Config) { c.Scripts = signalScripts{&seen} })
	w.queue("q", recording())
	for kind, window := range map[hook.Kind]string{hook.OnEnqueue: "1m", hook.OnFailure: "all"} {
		h, err := loadScript(&w.core.cfg, hook.Caller{}, kind, window)
		if err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { return tx.LoadScript("q", h, "") })
	}
	want := func(values ...float64) {
		t.Helper()
		if !slices.EqualFunc(seen, values, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9 }) {
			t.Errorf("hooks have seen %v, want %v", seen, values)
		}
		seen = nil
	}
	w.enqueue("q", "acme", "a")
	want(0)
	for i := range 3 {
		w.nack(&Nack{Queue: "q", Receipt: w.lease("q", 1)[0].Receipt, Delay: -1})
		want(float64(i))
	}
	w.enqueue("q", "acme", "b")
	want(3)
	w.enqueue("q", "bolt", "c")
	want(0)
	w.Advance(time.Minute)
	w.enqueue("q", "acme", "d")
	want(3 / math.E)
	w.signal("acme", "failed", 10)
	w.enqueue("q", "acme", "e")
	want(10 + 3/math.E)
}
