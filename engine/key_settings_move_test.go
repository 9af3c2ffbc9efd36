package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// pinKeys sets the weight of n keys of a queue.
func (w *world) pinKeys(queue string, n int) {
	w.t.Helper()
	for i := range n {
		w.must(func(tx *Tx) error {
			return tx.SetKey(queue, fmt.Sprintf("k%d", i), KeyOptions{Weight: new(uint32(i%9 + 2))})
		})
	}
}

// settingsIn counts the settings of keys in a store, by the number of their queue.
func settingsIn(t *testing.T, store *storage.Memory) map[uint32]int {
	t.Helper()
	n := map[uint32]int{}
	prefix := storage.AppendStateKey(nil, storage.StateKey)
	it := store.Scan(storage.State, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		parts, err := storage.ParseStateKey(it.Key())
		if err != nil {
			t.Fatal(err)
		}
		n[uint32(parts[1][2])<<8|uint32(parts[1][3])]++
	}
	return n
}

// weights returns the weights of the keys of a queue that have settings.
func (w *world) weights(queue string) map[string]uint32 {
	all := map[string]uint32{}
	for name, set := range w.core.queues.byName[queue].settings.All() {
		all[name] = set.Weight
	}
	return all
}

// purging starts the purge of a queue with n keys that have settings, and runs some turns
// of it.
func purging(t *testing.T, n int) (*world, *storage.Memory, *Task) {
	t.Helper()
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.core.tasks.budget.Turn = 64
	w.queue("q", QueueOptions{})
	w.pinKeys("q", n)
	w.fillKeys("q", 10)
	task := &Task{Client: NewClient(1, func() {}), Call: purgeOf("q").Call}
	w.tick(task)
	w.tick()
	w.tick()
	if moving, _ := w.core.queues.byName["q"].settings.Moving(nil); task.Done() || !moving {
		t.Fatal("the purge is over: the test is about what happens meanwhile")
	}
	return w, store, task
}

func TestAPurgeWritesVeryManySettingsOfKeysInSlices(t *testing.T) {
	const n = 1000
	w, store, task := purging(t, n)
	w.must(func(tx *Tx) error { return tx.SetKey("q", "k3", KeyOptions{Weight: new(uint32(77))}) })
	w.must(func(tx *Tx) error { return tx.SetKey("q", "k999", KeyOptions{Weight: new(uint32(78))}) })
	w.must(func(tx *Tx) error { return tx.PauseKey("q", "new", true) })
	w.must(func(tx *Tx) error { _, err := tx.ResetKey("q", "k5"); return err })
	for turns := 0; !task.Done(); turns++ {
		w.tick()
		if f := w.flight; f != nil && f.batch != nil && f.batch.Len() > 2*64+10 {
			t.Fatalf("a batch has %d records", f.batch.Len())
		}
		if turns == 1000 {
			t.Fatal("it has no end")
		}
	}
	w.Do()
	if task.Err() != nil || w.counts("q").Ready != 0 {
		t.Fatalf("%d messages are left: %v", w.counts("q").Ready, task.Err())
	}
	want := w.weights("q")
	if len(want) != n || want["k3"] != 77 || want["k999"] != 78 || want["new"] != 1 || want["k5"] != 0 {
		t.Errorf("%d keys have settings: k3 %d, k999 %d, new %d, k5 %d", len(want), want["k3"], want["k999"], want["new"], want["k5"])
	}
	if in := settingsIn(t, store); len(in) != 1 || in[w.core.queues.byName["q"].no] != n {
		t.Errorf("the store has settings under these numbers: %v", in)
	}
	again := openWorld(t, store.Clone(), w.now, nil).weights("q")
	for name, weight := range want {
		if again[name] != weight {
			t.Errorf("after a restart %s has weight %d, want %d", name, again[name], weight)
		}
	}
}

func TestACrashInAPurgeLeavesNoSettingsBehind(t *testing.T) {
	const n = 1000
	w, store, _ := purging(t, n)
	crashed := store.Clone()
	if in := settingsIn(t, crashed); len(in) != 2 {
		t.Fatalf("the store has settings under these numbers: %v", in)
	}
	again := openWorld(t, crashed, w.now, nil)
	if got := again.counts("q"); got.Ready != 10 || len(again.weights("q")) != n {
		t.Errorf("there are %d messages, and %d keys with settings", got.Ready, len(again.weights("q")))
	}
	if in := settingsIn(t, crashed); len(in) != 1 || in[again.core.queues.byName["q"].no] != n {
		t.Errorf("after a start the store has settings under these numbers: %v", in)
	}
	w.Do()
}

func TestAQueueThatIsDeletedWhileItIsPurgedLeavesNoSettings(t *testing.T) {
	w, store, task := purging(t, 1000)
	w.Do(deletionOf("q"))
	if !task.Done() || task.Err() == nil {
		t.Errorf("the purge is done %v: %v", task.Done(), task.Err())
	}
	if in := settingsIn(t, store); len(in) != 0 {
		t.Errorf("the store has settings under these numbers: %v", in)
	}
}

func TestConcurrentPurgesOfAQueue(t *testing.T) {
	w, store, first := purging(t, 1000)
	second := &Task{Client: NewClient(2, func() {}), Call: purgeOf("q").Call}
	w.tick(second)
	errs := make([]error, 1)
	w.Do(&Task{Call: callFunc(func(tx *Tx) error { // a call that must not wait, and is more than a turn
		return tx.Exec([]Call{purgeOf("q").Call}, errs)
	})})
	if !first.Done() || !second.Done() || first.Err() != nil || second.Err() != nil || !errors.Is(errs[0], ErrTooBig) {
		t.Errorf("they end with %v, %v and %v", first.Err(), second.Err(), errs[0])
	}
	if in := settingsIn(t, store); len(in) != 1 || in[w.core.queues.byName["q"].no] != 1000 {
		t.Errorf("the store has settings under these numbers: %v", in)
	}
}
