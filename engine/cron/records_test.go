package cron

import (
	"errors"
	"fmt"
	"testing"

	"github.com/faisca/fila/storage"
)

func commit(t *testing.T, store *storage.Memory, b *storage.Batch) {
	t.Helper()
	if err := store.Commit(b, true); err != nil {
		t.Fatal(err)
	}
	b.Reset()
}

func TestEntriesAreTheirRecords(t *testing.T) {
	store, b := storage.NewMemory(), &storage.Batch{}
	tab := NewTable()
	e := tab.Set("m", storage.Cron{Queue: "q", Expression: "* * * * *"}, minutely(t), start)
	content := storage.Message{Payload: []byte("x")}
	e.Put(b)
	e.PutContent(b, content.Append(nil))
	commit(t, store, b)
	again := NewTable()
	key := storage.AppendStateKey(nil, storage.StateCron, "m")
	value, err := store.Get(storage.State, key)
	if err != nil {
		t.Fatal(err)
	}
	if name, disabled, err := again.Read(key, value); name != "m" || disabled != nil || err != nil || again.Get("m").Record().NextAt != start+minute {
		t.Errorf("%q, %v, %v", name, disabled, err)
	}
	if _, _, err := again.Read(key[:len(key)-1], value); err != nil && !errors.Is(err, storage.ErrCorrupt) {
		t.Error(err)
	}
	k := tab.Take(e)
	m, err := k.Content(store)
	if err != nil || string(m.Payload) != "x" || len(m.Headers) != Headers {
		t.Fatalf("%+v, %v", m, err)
	}
	if got, want := fmt.Sprintf("%s %s %s %s", m.Headers[0].Name, m.Headers[0].Value, m.Headers[1].Name, m.Headers[1].Value),
		fmt.Sprintf("fila-cron m fila-cron-at %d", (start+minute)/1e6); got != want {
		t.Errorf("headers %s, want %s", got, want)
	}
	tab.Remove(e, b)
	commit(t, store, b)
	if _, err := Content(store, "m"); !errors.Is(err, storage.ErrNotFound) || tab.Get("m") != nil {
		t.Errorf("the content is left: %v", err)
	}
	it := store.Scan(storage.State, nil, nil)
	defer it.Close()
	if it.Seek(nil) {
		t.Errorf("the record %q is left", it.Key())
	}
}

func TestARoundTakesWhatIsDueUpToABound(t *testing.T) {
	tab, b := NewTable(), &storage.Batch{}
	for i := range roundMax + 10 {
		tab.Set(fmt.Sprint("m", i), storage.Cron{Expression: "* * * * *"}, minutely(t), start)
	}
	if ticks, missed := tab.Round(start+minute-1, b); len(ticks) != 0 || missed != 0 {
		t.Errorf("%d ticks early", len(ticks))
	}
	first, _ := tab.Round(start+minute, b)
	rest, missed := tab.Round(start+minute, b)
	if len(first) != roundMax || len(rest) != 10 || missed != 0 || b.Len() != 0 {
		t.Errorf("%d and %d ticks, %d missed, %d records", len(first), len(rest), missed, b.Len())
	}
}

func TestARoundWritesTheEntriesThatItMovesPastMissedTicks(t *testing.T) {
	tab, b := NewTable(), &storage.Batch{}
	tab.Set("last", storage.Cron{Expression: "* * * * *"}, minutely(t), start)
	tab.Set("none", storage.Cron{Expression: "* * * * *", CatchUp: uint32(None)}, minutely(t), start)
	ticks, missed := tab.Round(start+100*minute+30e9, b)
	if len(ticks) != 1 || ticks[0].Name() != "last" || ticks[0].At != start+100*minute || missed != 199 || b.Len() != 2 {
		t.Errorf("ticks %+v, %d missed, %d records", ticks, missed, b.Len())
	}
}
