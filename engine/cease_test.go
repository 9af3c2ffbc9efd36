package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// A task that yields has done a part of its work in batches that are committed.
func TestHaltSaysThatATaskMayBeDoneInPart(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for range 100 {
		w.enqueue("q", "k", "m")
	}
	var receipts []Receipt
	for _, d := range w.lease("q", 100) {
		receipts = append(receipts, d.Receipt)
	}
	w.core.tasks.budget.Turn = 16
	ack := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) error { _, err := tx.Ack("q", receipts); return err })}
	w.core.turn(w.Now(), []*Task{ack})
	if ack.progress == nil || ack.progress.at == 0 {
		t.Fatal("the ack has not yielded")
	}
	w.Halt(storage.ErrDeposed)
	if !ack.Done() || !errors.Is(ack.Err(), ErrDeposed) {
		t.Errorf("answered with %v", ack.Err())
	}
}

func TestTheTimeIsKeptWhereAnotherNodeMayTakeOver(t *testing.T) {
	now := storage.AppendStateKey(nil, storage.StateNow)
	keeps := func(c *Config) { c.KeepTime = true }
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), keeps)
	w.queue("q", QueueOptions{})
	w.Advance(time.Hour)
	w.enqueue("q", "k", "m")
	w.Advance(time.Minute - time.Duration(w.Now().UnixNano())%time.Minute) // the history is written at the end of the minute
	reached := w.Now()
	if v, err := store.Get(storage.State, now); err != nil || string(v) != string(storage.EncodeUint(uint64(reached.UnixNano()))) {
		t.Errorf("the time is %x, %v", v, err)
	}
	w.Advance(time.Hour)
	if v, _ := store.Get(storage.State, now); string(v) != string(storage.EncodeUint(uint64(reached.UnixNano()))) {
		t.Error("a batch that is empty is written for the time")
	}
	behind := openWorld(t, store, time.Unix(1_600_000_000, 0), keeps)
	if !behind.Now().Equal(reached) {
		t.Errorf("a clock that is behind begins at %v, want %v", behind.Now(), reached)
	}
	ahead := openWorld(t, store, time.Unix(1_800_000_000, 0), keeps)
	if got := ahead.Now(); got.Before(time.Unix(1_800_000_000, 0)) {
		t.Errorf("a clock that is ahead begins at %v", got)
	}
}
