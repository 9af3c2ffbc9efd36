package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

func (w *world) load(queue, source, user string) {
	w.t.Helper()
	w.must(func(tx *Tx) error { return tx.LoadScript(queue, textHook{simHook{hook.OnEnqueue}, source}, user) })
	w.Advance(time.Second)
}

// history returns the history of the on_enqueue hook: sources, users and seconds since the
// start, the present one marked.
func (w *world) history(queue string) string {
	w.t.Helper()
	var lines []string
	req := &ScriptHistory{Queue: queue, Kind: hook.OnEnqueue}
	w.must(func(tx *Tx) error {
		list, err := tx.ScriptHistory(req)
		for _, v := range list {
			line := v.Source + "/" + v.User
			if !v.LoadedAt.IsZero() {
				line += fmt.Sprintf("/%d", v.LoadedAt.Unix()-1_700_000_000)
			}
			if v.Current {
				line += "!"
			}
			lines = append(lines, line)
		}
		return err
	})
	return strings.Join(lines, " ")
}

func (w *world) rollback(queue, version, user string) error {
	w.t.Helper()
	source, err := w.ScriptSource(queue, hook.OnEnqueue, version)
	var h hook.Hook
	if err == nil && source != "" {
		h, err = w.CompileScript(hook.Caller{}, hook.OnEnqueue, source)
	}
	if err == nil {
		err = w.do(func(tx *Tx) error { return tx.RollbackScript(queue, hook.OnEnqueue, version, h, user) })
	}
	w.Advance(time.Second)
	return err
}

func (w *world) wantHistory(queue, want string) {
	w.t.Helper()
	if got := w.history(queue); got != want {
		w.t.Errorf("the history of %s is\n%s, want\n%s", queue, got, want)
	}
}

func TestAHookIsRolledBackToASourceOfItsHistory(t *testing.T) {
	w := newWorld(t, withScripts)
	w.queue("q", QueueOptions{})
	w.wantHistory("q", "")
	w.load("q", "one", "anna")
	w.load("q", "two", "berta")
	w.load("q", "two", "carla")
	w.wantHistory("q", "two/carla/2! one/anna/0")
	if err := w.rollback("q", "v-one", "dora"); err != nil {
		t.Fatal(err)
	}
	w.wantHistory("q", "one/dora/3! two/carla/2")
	if h := w.Snapshot().Hook("q", hook.OnEnqueue); h.Source() != "one" {
		t.Errorf("the hook is %q", h.Source())
	}
	for range 2 { // the second time after a restart
		if err := w.rollback("q", "v-three", ""); !errors.Is(err, ErrInvalid) {
			t.Errorf("a version that is not there: %v", err)
		}
		w.wantHistory("q", "one/dora/3! two/carla/2")
		w.sound()
		w = openWorld(t, w.store, w.now, withScripts)
	}
	if err := w.rollback("q", "v-two", ""); err != nil {
		t.Fatal(err)
	}
	w.wantHistory("q", "two//6! one/dora/3")
	w.must(func(tx *Tx) error { _, err := tx.DeleteScript("q", hook.OnEnqueue); return err })
	w.wantHistory("q", "two//6 one/dora/3")
	if err := w.rollback("q", "v-one", "eva"); err != nil {
		t.Fatal(err)
	}
	w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
	w.wantHistory("q", "one/eva/7! two//6")
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) })
	w.queue("q", QueueOptions{})
	w.wantHistory("q", "")
	if n := w.scripts(); n != 0 {
		t.Errorf("the store has %d sources of a queue that was deleted", n)
	}
}

// scripts is how many sources the store has.
func (w *world) scripts() (n int) {
	prefix := storage.AppendStateKey(nil, storage.StateScript)
	it := w.store.Scan(storage.State, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		n++
	}
	return n
}

func TestASourceThatDoesNotCompileAnyMoreIsNotRolledBackTo(t *testing.T) {
	w := newWorld(t, withScripts)
	w.queue("q", QueueOptions{})
	w.load("q", "bad", "")
	w.load("q", "good", "")
	if err := w.rollback("q", "v-bad", ""); !errors.Is(err, ErrScript) {
		t.Errorf("got %v", err)
	}
	w.wantHistory("q", "good//1! bad//0")
	errs := make([]error, 1)
	w.must(func(tx *Tx) error {
		return tx.Exec([]Call{callFunc(func(tx *Tx) error { _, err := tx.ScriptHistory(&ScriptHistory{Queue: "q"}); return err })}, errs)
	})
	if !errors.Is(errs[0], errWaits) {
		t.Errorf("in a transaction: %v", errs[0])
	}
}

// A history has its ten newest sources, and all histories together a bound in bytes, beyond
// which the oldest sources go, of whatever queue they are. The newest is kept in any case.
func TestHistoriesAreBounded(t *testing.T) {
	w := newWorld(t, withScripts)
	for _, q := range []string{"a", "b"} {
		w.queue(q, QueueOptions{})
		for i := range ScriptHistoryMax {
			w.load(q, fmt.Sprintf("%s%02d", q, i), "")
		}
	}
	if n := w.scripts(); n != 2*ScriptHistoryMax {
		t.Errorf("%d sources are in the store", n)
	}
	w.load("a", "a10", "")
	if got := w.history("a"); w.scripts() != 2*ScriptHistoryMax || strings.Contains(got, "a00/") || !strings.Contains(got, "a01/") {
		t.Errorf("%d sources, the history is %s", w.scripts(), got)
	}
	w.core.cfg.HistoryBytes = w.core.scripts.Bytes()
	w.load("a", "a11", "") // takes the place of one as large
	if n := w.scripts(); n != 2*ScriptHistoryMax {
		t.Errorf("%d sources fit", n)
	}
	w.load("b", "b-large"+strings.Repeat("x", 3*w.core.scripts.Bytes()/20), "")
	if got := w.history("a"); strings.Contains(got, "a02/") || !strings.Contains(got, "a11/") || w.core.scripts.Bytes() > w.core.cfg.HistoryBytes {
		t.Errorf("%d bytes of %d, the history is %s", w.core.scripts.Bytes(), w.core.cfg.HistoryBytes, got)
	}
	w.sound()
	w.core.cfg.HistoryBytes = 0
	w.load("a", "last", "")
	if w.scripts() != 1 || !strings.HasPrefix(w.history("a"), "last/") || w.history("b") != "" {
		t.Errorf("%d sources are left, %s and %s", w.scripts(), w.history("a"), w.history("b"))
	}
	w.sound()
}

// A data directory from before there were histories has a hook and no history: what is loaded
// over it is kept. What an older release leaves of a queue that it deletes goes at the start.
func TestHistoriesBeginWithOlderData(t *testing.T) {
	w := newWorld(t, withScripts)
	w.queue("q", QueueOptions{})
	w.load("q", "old", "anna")
	var b storage.Batch
	prefix := storage.AppendStateKey(nil, storage.StateScript)
	b.DeleteRange(storage.State, prefix, storage.After(prefix))
	b.Put(storage.State, storage.AppendStateKey(nil, storage.StateScript, "gone", "on_enqueue", string(storage.EncodeUint(7))), (&storage.Script{Source: "x", Version: "y"}).Append(nil))
	if err := w.store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	w = openWorld(t, w.store, w.now, withScripts)
	if n := w.scripts(); n != 0 {
		t.Errorf("%d sources of a queue that is gone are left", n)
	}
	w.wantHistory("q", "")
	w.load("q", "new", "berta")
	w.wantHistory("q", "new/berta/1! old/")
	if err := w.rollback("q", "v-old", "berta"); err != nil {
		t.Fatal(err)
	}
	w.wantHistory("q", "old/berta/2! new/berta/1")
}

// An applied definition is in the history, too, unless it has the hook that is there.
func TestADefinitionThatChangesAHookIsInItsHistory(t *testing.T) {
	w := newWorld(t, withScripts)
	apply := func(source, user string) {
		t.Helper()
		w.must(func(tx *Tx) error {
			_, err := tx.ApplyQueues(&QueueSet{User: user, Queues: []QueueSpec{{Name: "q", Hooks: [2]hook.Hook{textHook{simHook{hook.OnEnqueue}, source}, nil}}}})
			return err
		})
		w.Advance(time.Second)
	}
	apply("one", "anna")
	apply("one", "berta")
	apply("two", "carla")
	w.wantHistory("q", "two/carla/2! one/anna/0")
	w.sound()
}

// A history that is read while one of its sources is loaded again has the source that the queue has now.
func TestAHistoryBesideARollbackHasTheSourceInForce(t *testing.T) {
	w := newWorld(t, withScripts)
	w.queue("q", QueueOptions{})
	w.load("q", "one", "ann")
	w.load("q", "two", "ann")
	var list []ScriptVersion
	req := &ScriptHistory{Queue: "q", Kind: hook.OnEnqueue}
	ask := &Task{Call: callFunc(func(tx *Tx) (err error) { list, err = tx.ScriptHistory(req); return err })}
	w.tick(ask) // it is being read
	if err := w.rollback("q", "v-one", "bob"); err != nil {
		t.Fatal(err)
	}
	w.Do()
	if !ask.Done() || ask.Err() != nil {
		t.Fatalf("done %v: %v", ask.Done(), ask.Err())
	}
	if len(list) != 2 || !list[0].Current || list[0].Source != "one" || list[0].User != "bob" || list[1].Source != "two" {
		t.Errorf("got %+v", list)
	}
}
