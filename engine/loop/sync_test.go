package loop_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
)

// syncedLater is a store whose syncs a test answers.
type syncedLater struct {
	*storage.Memory
	verdicts chan error
}

func (s *syncedLater) Sync() error { return <-s.verdicts }

// A work that is handed over while a sync fails is refused without a commit. Nothing of its batch may be in a later one:
// that would store what was refused, on top of a memory that does not know of it.
func TestWhatASyncThatFailsRefusesIsNotInALaterBatch(t *testing.T) {
	store := &syncedLater{Memory: storage.NewMemory()}
	cfg := engine.DefaultConfig()
	cfg.Sync = engine.SyncInterval
	bubble(t, cfg, store, func(e *loop.Engine) {
		store.verdicts = make(chan error)
		create := func(name string) error {
			return ask(e, func(tx *engine.Tx) error { return tx.CreateQueue(name, engine.QueueOptions{NoDLQ: true}) })
		}
		if err := create("first"); err != nil {
			t.Fatal(err)
		}
		<-time.After(cfg.SyncInterval)
		synctest.Wait() // the sync is under way
		refused := make(chan error)
		go func() { refused <- create("refused") }()
		synctest.Wait() // the committer has its work, after the sync
		store.verdicts <- errors.New("no disk")
		close(store.verdicts)
		if err := <-refused; !errors.Is(err, engine.ErrMisconf) {
			t.Fatalf("while the sync fails: %v", err)
		}
		<-time.After(2 * cfg.RetryInterval)
		for _, name := range []string{"second", "third", "fourth"} {
			if err := create(name); err != nil {
				t.Errorf("after the repair: %v", err)
			}
		}
	})
	again, err := engine.NewStepper(engine.DefaultConfig(), store.Clone(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	again.Do(&engine.Task{Call: callFunc(func(tx *engine.Tx) (err error) { names, err = tx.Queues(); return err })})
	if len(names) != 4 {
		t.Errorf("the store has the queues %q", names)
	}
}

// A batch that the committer has and that is not with the store when the engine is halted never will be: another node
// may lead.
func TestAHaltedEngineCommitsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &syncedLater{Memory: storage.NewMemory(), verdicts: make(chan error)}
		cfg := engine.DefaultConfig()
		cfg.Sync = engine.SyncInterval
		e, err := loop.New(cfg, store)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		<-e.Ready()
		<-time.After(cfg.SyncInterval)
		synctest.Wait() // the sync is under way
		create := &engine.Task{Call: callFunc(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{NoDLQ: true}) })}
		e.Submit([]*engine.Task{create})
		synctest.Wait() // the committer has its work, after the sync
		before := store.Clone()
		cause := errors.New("term 2 has begun")
		e.Halt(cause)
		close(store.verdicts)
		if err := <-ended; !errors.Is(err, cause) {
			t.Errorf("Run returns %v", err)
		}
		if !create.Done() || !errors.Is(create.Err(), engine.ErrTakeover) {
			t.Errorf("done: %v, answered with %v", create.Done(), create.Err())
		}
		for name, s := range map[string]*storage.Memory{"before": before, "after": store.Memory} {
			it := s.Scan(storage.Queues, nil, nil)
			if it.Seek(nil) {
				t.Errorf("%s the halt the store has a queue", name)
			}
			it.Close()
		}
	})
}
