package loop_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
)

// heldStore is the store of a leader whose log a test may hold up.
type heldStore struct {
	*storage.Memory
	holds    atomic.Bool
	verdicts chan error // of the commits that are held up: nil lets one happen
	commits  atomic.Int64
}

func (s *heldStore) Commit(b *storage.Batch, sync bool) error {
	s.commits.Add(1)
	if s.holds.Load() {
		if err := <-s.verdicts; err != nil {
			return err
		}
	}
	return s.Memory.Commit(b, sync)
}

// leader is an engine in a bubble with Config.Confirm, both of whose questions a test answers.
type leader struct {
	*loop.Engine
	t     *testing.T
	store *heldStore
	asks  atomic.Bool // Confirm waits for an answer
	asked atomic.Int64
	says  chan error // the answers of Confirm
	ended chan error // the result of Run
	last  uint64     // id of a client
}

// leading runs an engine until the test function returns, which has to halt or to stop it.
func leading(t *testing.T, change func(*engine.Config), run func(l *leader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &leader{
			t: t, store: &heldStore{Memory: storage.NewMemory(), verdicts: make(chan error)},
			says: make(chan error), ended: make(chan error, 1),
		}
		cfg := engine.DefaultConfig()
		cfg.LeaseWriteDelay = time.Hour
		cfg.Confirm = func() error {
			if l.asked.Add(1); l.asks.Load() {
				return <-l.says
			}
			return nil
		}
		if change != nil {
			change(&cfg)
		}
		var err error
		if l.Engine, err = loop.New(cfg, l.store); err != nil {
			t.Fatal(err)
		}
		go func() { l.ended <- l.Run(context.Background()) }()
		<-l.Ready()
		l.must(func(tx *engine.Tx) error {
			return errors.Join(tx.CreateQueue("q", engine.QueueOptions{}), tx.CreateQueue("other", engine.QueueOptions{}))
		})
		run(l)
	})
}

func (l *leader) must(call func(tx *engine.Tx) error) {
	l.t.Helper()
	if err := ask(l.Engine, call); err != nil {
		l.t.Fatal(err)
	}
}

// submit submits a call of a client of its own, and lets the engine do what it can.
func (l *leader) submit(call func(tx *engine.Tx) error) *engine.Task {
	l.last++
	task := &engine.Task{Call: callFunc(call), Client: engine.NewClient(1000+l.last, func() {})}
	l.Submit([]*engine.Task{task})
	synctest.Wait()
	return task
}

func (l *leader) enqueue(queue string) *engine.Task {
	l.t.Helper()
	req := &engine.Enqueue{Queue: queue, Payload: []byte("m")}
	if err := l.Prepare(req); err != nil {
		l.t.Fatal(err)
	}
	return l.submit(func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
}

func (l *leader) lease(queue string, block time.Duration) (*engine.Task, *[]*engine.Delivery) {
	var ds []*engine.Delivery
	req := &engine.LeaseRequest{Queues: []string{queue}, Count: 1, Block: block}
	return l.submit(func(tx *engine.Tx) (err error) { ds, err = tx.Lease(req); return err }), &ds
}

// halt halts the engine and waits for its end.
func (l *leader) halt() {
	l.t.Helper()
	cause := errors.New("term 2 has begun")
	l.Halt(cause)
	l.Halt(errors.New("a second cause"))
	synctest.Wait()
	if l.store.holds.Load() {
		l.store.holds.Store(false)
		l.store.verdicts <- storage.ErrDeposed
	}
	if l.asks.Load() {
		l.asks.Store(false)
		l.says <- storage.ErrDeposed
	}
	if err := <-l.ended; !errors.Is(err, cause) {
		l.t.Errorf("Run returns %v", err)
	}
}

func (l *leader) stop() {
	l.t.Helper()
	l.Stop()
	if err := <-l.ended; err != nil {
		l.t.Error(err)
	}
}

func (l *leader) want(task *engine.Task, want error, text string) {
	l.t.Helper()
	if !task.Done() || !errors.Is(task.Err(), want) || want == nil && task.Err() != nil || want != nil && !strings.Contains(task.Err().Error(), text) {
		l.t.Errorf("done: %v, answered with %v; want %v", task.Done(), task.Err(), want)
	}
}

func TestHaltAnswersEachTaskByWhereItIs(t *testing.T) {
	const nothing, unknown = "another node is taking over, try again", "the command may have happened or not"
	t.Run("a batch with the log, and one behind it", func(t *testing.T) {
		leading(t, nil, func(l *leader) {
			l.store.holds.Store(true)
			handed, behind := l.enqueue("q"), l.enqueue("q")
			refused := l.submit(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
			l.halt()
			l.want(handed, engine.ErrDeposed, unknown)
			l.want(behind, engine.ErrTakeover, nothing)
			l.want(refused, engine.ErrTakeover, nothing)
		})
	})
	t.Run("leases that were told and not confirmed", func(t *testing.T) {
		leading(t, nil, func(l *leader) {
			l.want(l.enqueue("q"), nil, "")
			l.asks.Store(true)
			lease, _ := l.lease("q", -1)
			read := l.submit(func(tx *engine.Tx) error { tx.Stats(); return nil })
			if lease.Done() || read.Done() {
				t.Error("answered without a confirmation")
			}
			l.halt()
			l.want(lease, engine.ErrTakeover, nothing)
			l.want(read, engine.ErrTakeover, nothing)
		})
	})
	t.Run("a wait for messages, and what is behind it", func(t *testing.T) {
		leading(t, nil, func(l *leader) {
			var ds []*engine.Delivery
			cl := engine.NewClient(7, func() {})
			wait := &engine.Task{Client: cl, Call: callFunc(func(tx *engine.Tx) (err error) {
				ds, err = tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0})
				return err
			})}
			behind := &engine.Task{Client: cl, Call: callFunc(func(tx *engine.Tx) error { _, err := tx.Purge(&engine.Purge{Queue: "q"}); return err })}
			l.Submit([]*engine.Task{wait, behind})
			synctest.Wait()
			l.halt()
			l.want(wait, nil, "")
			l.want(behind, engine.ErrTakeover, nothing)
			if len(ds) != 0 {
				t.Errorf("%d messages", len(ds))
			}
		})
	})
	t.Run("a wait for a verdict", func(t *testing.T) {
		leading(t, nil, func(l *leader) {
			gate := make(chan struct{})
			l.must(func(tx *engine.Tx) error { return tx.LoadScript("q", slow(gate), "") })
			l.enqueue("q")
			_, ds := l.lease("q", -1)
			req := &engine.Nack{Queue: "q", Receipt: (*ds)[0].Receipt, Delay: -1}
			nack := l.submit(func(tx *engine.Tx) error { _, err := tx.Nack(req); return err })
			if nack.Done() {
				t.Fatal("the nack should wait for its hook")
			}
			time.AfterFunc(time.Second, func() { close(gate) })
			l.halt()
			l.want(nack, engine.ErrTakeover, nothing)
		})
	})
	t.Run("commands that come later", func(t *testing.T) {
		leading(t, nil, func(l *leader) {
			l.halt()
			l.want(l.submit(func(*engine.Tx) error { return nil }), engine.ErrTakeover, nothing)
		})
	})
}

// The commit that is under way may end well: its tasks are answered so, except for leases, which a
// later leader does not know.
func TestWhatIsCommittedWhileTheEngineIsHaltedHasHappened(t *testing.T) {
	leading(t, nil, func(l *leader) {
		l.store.holds.Store(true)
		filler := l.enqueue("other") // the next two tasks share a batch behind this one
		enqueue := l.enqueue("q")
		lease, ds := l.lease("q", -1)
		if len(*ds) != 1 {
			t.Fatal("nothing is leased")
		}
		l.store.verdicts <- nil
		synctest.Wait()
		l.want(filler, nil, "")
		l.Halt(errors.New("term 2 has begun"))
		synctest.Wait()
		l.store.verdicts <- nil
		if err := <-l.ended; err == nil {
			t.Error("Run returns nil")
		}
		l.want(enqueue, nil, "")
		l.want(lease, engine.ErrDeposed, "") // it may be a transaction that has enqueued as well
	})
}

func TestADeposedCommitHaltsTheEngine(t *testing.T) {
	leading(t, nil, func(l *leader) {
		l.store.holds.Store(true)
		task := l.enqueue("q")
		l.store.holds.Store(false)
		l.store.verdicts <- storage.ErrDeposed
		if err := <-l.ended; !errors.Is(err, storage.ErrDeposed) {
			t.Errorf("Run returns %v", err)
		}
		l.want(task, engine.ErrDeposed, "")
		if n := l.store.commits.Load(); n != 3 { // the start, the queues, the enqueue
			t.Errorf("%d commits: something follows the one that failed", n)
		}
	})
}

func TestAnEngineThatIsDeposedAtItsStartAnswersWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &heldStore{Memory: storage.NewMemory(), verdicts: make(chan error, 1)}
		store.holds.Store(true)
		e, err := loop.New(engine.DefaultConfig(), store)
		if err != nil {
			t.Fatal(err)
		}
		task := &engine.Task{Call: callFunc(func(*engine.Tx) error { return nil })}
		e.Submit([]*engine.Task{task})
		store.verdicts <- storage.ErrDeposed
		if err := e.Run(context.Background()); !errors.Is(err, storage.ErrDeposed) {
			t.Errorf("Run returns %v", err)
		}
		if !task.Done() || !errors.Is(task.Err(), engine.ErrTakeover) {
			t.Errorf("answered with %v", task.Err())
		}
	})
}

func TestAConfirmationThatFailsHaltsTheEngine(t *testing.T) {
	leading(t, nil, func(l *leader) {
		l.enqueue("q")
		l.asks.Store(true)
		lease, _ := l.lease("q", -1)
		l.says <- storage.ErrDeposed
		if err := <-l.ended; !errors.Is(err, storage.ErrDeposed) {
			t.Errorf("Run returns %v", err)
		}
		l.want(lease, engine.ErrTakeover, "")
	})
}

// The answer to a question confirms what was decided before the question was asked, and nothing
// that came later.
func TestAConfirmationServesWhatWaitedBeforeIt(t *testing.T) {
	leading(t, nil, func(l *leader) {
		for range 5 {
			l.want(l.enqueue("q"), nil, "")
		}
		l.asks.Store(true)
		before := l.asked.Load()
		first, _ := l.lease("q", -1)
		second, _ := l.lease("q", -1)
		third, _ := l.lease("q", -1)
		l.says <- nil
		synctest.Wait()
		if !first.Done() || second.Done() || third.Done() {
			t.Errorf("after one answer: %v, %v, %v", first.Done(), second.Done(), third.Done())
		}
		l.says <- nil
		synctest.Wait()
		if !second.Done() || !third.Done() || l.asked.Load()-before != 2 {
			t.Errorf("after %d questions: %v, %v", l.asked.Load()-before, second.Done(), third.Done())
		}
		l.asks.Store(false)
		l.stop()
	})
}

func TestACommitConfirmsWhatItHasMadeSoAndNoLease(t *testing.T) {
	leading(t, nil, func(l *leader) {
		l.store.holds.Store(true)
		l.asks.Store(true)
		filler := l.enqueue("other")
		enqueue := l.enqueue("q")
		lease, ds := l.lease("q", -1)
		l.store.verdicts <- nil
		l.store.verdicts <- nil
		synctest.Wait()
		l.want(filler, nil, "")
		l.want(enqueue, nil, "")
		if lease.Done() || len(*ds) != 1 {
			t.Errorf("the lease of %d messages is answered: %v", len(*ds), lease.Done())
		}
		l.says <- nil
		synctest.Wait()
		l.want(lease, nil, "")
		l.asks.Store(false)
		l.store.holds.Store(false)
		l.stop()
	})
}

// Settle promises that everything before it is public, also what waits for a confirmation.
func TestWhatSettlesComesAfterWhatIsConfirmed(t *testing.T) {
	leading(t, nil, func(l *leader) {
		l.enqueue("q")
		l.asks.Store(true)
		cl := engine.NewClient(7, func() {})
		lease := &engine.Task{Client: cl, Call: callFunc(func(tx *engine.Tx) error {
			_, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1})
			return err
		})}
		l.Submit([]*engine.Task{lease})
		settled := make(chan bool, 1)
		go func() { _ = l.Settle(cl, nil); settled <- lease.Done() }()
		synctest.Wait()
		l.enqueue("q") // a batch that is committed meanwhile
		select {
		case <-settled:
			t.Error("settled without a confirmation")
		default:
		}
		l.asks.Store(false)
		l.says <- nil
		if !<-settled {
			t.Error("settled before the lease was answered")
		}
		l.stop()
	})
}

// A reply behind an enqueue leaves after the commit of that. A lease there that was confirmed
// before would be sent by a leader that was stopped meanwhile, and replaced.
func TestALeaseBehindAnotherAnswerIsConfirmedAfterIt(t *testing.T) {
	leading(t, nil, func(l *leader) {
		l.enqueue("q")
		l.store.holds.Store(true)
		cl := engine.NewClient(7, func() {})
		req := &engine.Enqueue{Queue: "other", Payload: []byte("m")}
		if err := l.Prepare(req); err != nil {
			t.Fatal(err)
		}
		leaseCall := func() engine.Call {
			return callFunc(func(tx *engine.Tx) error {
				_, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1})
				return err
			})
		}
		enqueue := &engine.Task{Client: cl, Call: callFunc(func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })}
		behind := &engine.Task{Client: cl, Call: leaseCall()}
		l.Submit([]*engine.Task{enqueue, behind})
		synctest.Wait()
		if behind.Done() {
			t.Error("the lease is confirmed before the enqueue is committed")
		}
		l.store.holds.Store(false)
		l.store.verdicts <- nil
		synctest.Wait()
		l.want(enqueue, nil, "")
		l.want(behind, nil, "")
		l.enqueue("q")
		l.store.holds.Store(true)
		filler := l.enqueue("other")
		early := &engine.Task{Client: cl, Call: leaseCall()}
		l.Submit([]*engine.Task{early})
		synctest.Wait()
		if !early.Done() || filler.Done() {
			t.Error("a lease of a client that waits for nothing else waits for a commit")
		}
		l.store.holds.Store(false)
		l.store.verdicts <- nil
		l.stop()
	})
}
