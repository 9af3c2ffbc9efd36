package signals_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/engine/internal/writes"
	"github.com/faisca/fila/engine/signals"
	"github.com/faisca/fila/storage"
)

// world is signals with a store.
type world struct {
	*testing.T
	signals.Signals
	store *storage.Memory
	w     writes.Batch
}

func newWorld(t *testing.T, most int) *world {
	t.Helper()
	s, err := signals.New([]time.Duration{time.Minute}, most, 10*time.Second, 20)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, Signals: s, store: storage.NewMemory(), w: writes.Batch{Batch: &storage.Batch{}, Number: 1, Now: 1_700_000_000e9}}
	w.Reset()
	return w
}

// commit applies the open batch, and returns the keys of the records that there are.
func (w *world) commit() string {
	w.Helper()
	if err := w.store.Commit(w.w.Batch, true); err != nil {
		w.Fatal(err)
	}
	w.w.Reset()
	it := w.store.Scan(storage.Signals, nil, nil)
	defer it.Close()
	var keys []string
	for ok := it.Seek(nil); ok; ok = it.Next() {
		keys = append(keys, string(it.Key()[2:]))
	}
	if it.Err() != nil {
		w.Fatal(it.Err())
	}
	return fmt.Sprint(keys)
}

func (w *world) check() {
	w.Helper()
	w.CheckAll(func(no int, format string, args ...any) { w.Errorf("%d: "+format, append([]any{no}, args...)...) })
}

func TestWhatClientsAddIsWrittenAtOnceAndTheRestByACheckpoint(t *testing.T) {
	w := newWorld(t, 10)
	w.Add("s", "engine", 1, w.w)
	if _, err := w.AddNow(&signals.Addition{Subject: "s", Name: "client", Value: 2}, w.w); err != nil {
		t.Fatal(err)
	}
	w.check()
	if got := w.commit(); got != "[sclient]" {
		t.Errorf("at once the store has %s", got)
	}
	if did, _ := w.Step(w.w); did || w.NextAt(w.w.Now) != w.w.Now+10e9 {
		t.Errorf("a checkpoint at once, or at %d", w.NextAt(w.w.Now))
	}
	w.w.Now += 10e9
	if did, complete := w.Step(w.w); !did || !complete {
		t.Errorf("the checkpoint has written %v, is complete %v", did, complete)
	}
	if did, _ := w.Step(w.w); did || w.NextAt(w.w.Now) != signals.Never {
		t.Error("the checkpoint does not end")
	}
	if got := w.commit(); got != "[sclient sengine]" {
		t.Errorf("after the checkpoint the store has %s", got)
	}
	w.Delete("s", "client", w.w)
	if got := w.commit(); got != "[sengine]" || w.Has("s", "client") || !w.Has("s", "") {
		t.Errorf("after a removal the store has %s", got)
	}
}

// The engine may stop after any step: what was added while a checkpoint was under way is written by another one.
func TestWhatIsAddedDuringACheckpointIsWrittenByTheNext(t *testing.T) {
	w := newWorld(t, 10)
	w.Add("s", "a", 1, w.w)
	w.Add("s", "b", 1, w.w)
	w.w.Now += 10e9
	w.Step(w.w)
	w.Add("s", "a", 1, w.w)
	if did, complete := w.Step(w.w); !did || !complete {
		t.Error("the checkpoint does not end")
	}
	w.check()
	if at := w.NextAt(w.w.Now); at != w.w.Now+10e9 {
		t.Errorf("the next one is at %d", at)
	}
}

func TestOnePairTooManyTakesThePlaceOfTheOldest(t *testing.T) {
	w := newWorld(t, 2)
	for i := range 4 {
		evicted, err := w.AddNow(&signals.Addition{Subject: "s", Name: fmt.Sprint("n", i), Value: 1}, w.w)
		if err != nil || evicted != (i >= 2) {
			t.Errorf("addition %d: %v, %v", i, evicted, err)
		}
	}
	if got := w.commit(); got != "[sn2 sn3]" || w.Evicted() != 2 || w.Len() != 2 {
		t.Errorf("the store has %s, %d were evicted", got, w.Evicted())
	}
	lower := newWorld(t, 1)
	for _, name := range []string{"n2", "n3"} {
		key := storage.AppendSignalKey(nil, "s", name)
		value, err := w.store.Get(storage.Signals, key)
		if err == nil {
			err = lower.Read(key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lower.Restored()
	if lower.NextAt(5) != 5 {
		t.Error("what exceeds a lower limit stays")
	}
	if did, _ := lower.Step(lower.w); !did || lower.Len() != 1 {
		t.Error("what exceeds a lower limit was not removed")
	}
	lower.check()
}

func TestWhatClientsGiveIsBounded(t *testing.T) {
	w := newWorld(t, 10)
	at := func(ms int64) *int64 { return &ms }
	now := time.Unix(0, w.w.Now).UnixMilli()
	for _, tt := range []struct {
		a  signals.Addition
		ok bool
	}{
		{signals.Addition{Subject: "s", Name: "n", Value: 1e15}, true},
		{signals.Addition{Subject: "s", Name: "n", Value: -1e15, AtMs: at(now)}, true},
		{signals.Addition{Subject: "s", Name: "n", AtMs: at(0)}, true},
		{signals.Addition{Subject: "s", Name: "n", Value: 1.01e15}, false},
		{signals.Addition{Subject: "s", Name: "n", Value: math.NaN()}, false},
		{signals.Addition{Subject: "s", Name: "n", AtMs: at(now + 1)}, false},
		{signals.Addition{Subject: "s", Name: "n", AtMs: at(-1)}, false},
		{signals.Addition{Subject: "s", Name: ""}, false},
		{signals.Addition{Subject: "123456789012345678901", Name: "n"}, false},
	} {
		before := w.w.Len()
		if _, err := w.AddNow(&tt.a, w.w); (err == nil) != tt.ok || err != nil && !errors.Is(err, refusals.ErrInvalid) || !tt.ok && w.w.Len() != before {
			t.Errorf("%+v: %v", tt.a, err)
		}
	}
	if i, ok := w.Get("s", "n", w.w.Now); !ok || i.Subject != "s" {
		t.Errorf("%+v", i)
	}
	if next, list, looked := w.Page(0, 5, w.w.Now, func(subject string) bool { return subject == "s" }); next != 0 || len(list) != 1 || looked != 1 {
		t.Errorf("a page has %d signals, %d were looked at", len(list), looked)
	}
}
