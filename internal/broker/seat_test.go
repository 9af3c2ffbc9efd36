package broker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
)

// seatCall is a call of a test.
type seatCall func(tx *engine.Tx) error

func (c seatCall) Apply(tx *engine.Tx) error { return c(tx) }

// seatTest is a seat over one store, and the engine that runs on it.
type seatTest struct {
	*seat
	t       *testing.T
	store   *storage.Memory
	client  *engine.Client
	engine  *loop.Engine
	running chan error
}

func newSeatTest(t *testing.T) *seatTest {
	t.Helper()
	s := &seatTest{t: t, seat: newSeat(2*time.Second, nil), store: storage.NewMemory(), client: engine.NewClient(1, func() {})}
	t.Cleanup(func() { s.Vacate() })
	return s
}

// takeOver seats an engine and runs it.
func (s *seatTest) takeOver() {
	s.t.Helper()
	s.seatNext()
	s.run()
	synctest.Wait()
}

// seatNext seats an engine that does not run yet.
func (s *seatTest) seatNext() {
	s.t.Helper()
	cfg := engine.DefaultConfig()
	cfg.Start = s.Start()
	e, err := loop.New(cfg, s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	s.engine, s.running = e, make(chan error, 1)
	s.Seat(e)
}

func (s *seatTest) run() {
	go func() { s.running <- s.engine.Run(context.Background()) }()
}

// end stops the engine in force, which drains.
func (s *seatTest) end() {
	s.t.Helper()
	s.engine.Stop()
	if err := <-s.running; err != nil {
		s.t.Error(err)
	}
}

// submit submits a call of the client from a goroutine of its own and returns its task.
func (s *seatTest) submit(call seatCall) *engine.Task {
	task := &engine.Task{Call: call, Client: s.client}
	go s.Submit([]*engine.Task{task})
	return task
}

func nothing(*engine.Tx) error { return nil }

// done checks that a task is done, once everything that can happen has happened.
func (s *seatTest) done(task *engine.Task, refused string) {
	s.t.Helper()
	synctest.Wait()
	if !task.Done() {
		s.t.Fatal("the task still waits")
	}
	switch err := task.Err(); {
	case refused == "" && err != nil:
		s.t.Errorf("refused: %v", err)
	case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
		s.t.Errorf("got %v, want a refusal with %q", err, refused)
	}
}

func TestCallsWaitUntilAnEngineIsSeatedAndHasRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeatTest(t)
		task := s.submit(nothing)
		time.Sleep(time.Second)
		s.seatNext()
		time.Sleep(time.Second - time.Millisecond)
		synctest.Wait()
		if task.Done() {
			t.Fatal("done by an engine that does not run")
		}
		s.run()
		s.done(task, "")
		if took := task.Took(0); took != 2*time.Second-time.Millisecond {
			t.Errorf("took %v, counted from the start of the seat", took)
		}
		s.end()
	})
}

func TestCallsAreRefusedAfterTheWait(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*seatTest)
		text   string
	}{
		"no engine":     {func(*seatTest) {}, "no node of the cluster leads, try again in a moment"},
		"it recovers":   {func(s *seatTest) { s.seatNext() }, "this node is taking over"},
		"it hands over": {func(s *seatTest) { s.takeOver(); synctest.Wait(); s.Hold(); s.end() }, "this node is taking over"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSeatTest(t)
				c.before(s)
				task := s.submit(nothing)
				time.Sleep(2*time.Second - time.Nanosecond)
				synctest.Wait()
				if task.Done() {
					t.Error("refused before the wait is over")
				}
				time.Sleep(time.Nanosecond)
				s.done(task, c.text)
				if err := s.Prepare(&engine.Enqueue{Queue: "orders"}); err == nil || !strings.Contains(err.Error(), c.text) {
					t.Errorf("Prepare: %v, want %q", err, c.text)
				}
			})
		})
	}
}

// Between the last call that has entered and Hold's return nothing is lost, and the wait of the calls
// that follow ends with the next engine.
func TestAHandOverRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeatTest(t)
		s.takeOver()
		synctest.Wait()
		e, _ := s.enter() // a call that is about to be submitted
		if e == nil {
			t.Fatal("the engine takes no calls")
		}
		held := make(chan struct{})
		go func() { s.Hold(); close(held) }()
		synctest.Wait()
		later := s.submit(nothing)
		synctest.Wait()
		select {
		case <-held:
			t.Fatal("Hold has returned while a call was on its way to the engine")
		default:
		}
		if later.Done() {
			t.Error("a call has passed Hold")
		}
		entered := &engine.Task{Call: seatCall(nothing), Client: s.client}
		e.Submit([]*engine.Task{entered})
		s.exit()
		<-held
		s.end()
		s.done(entered, "")
		s.Vacate()
		s.takeOver()
		s.done(later, "")
		s.end()
	})
}

// The client of a connection outlives the engines: what waited in one, and what was queued behind that,
// is no burden to the next.
func TestAClientGoesOnWithTheNextEngine(t *testing.T) {
	for name, end := range map[string]func(s *seatTest){
		"handed over": func(s *seatTest) { s.Hold(); s.end() },
		"ceased": func(s *seatTest) {
			s.engine.Halt(engine.ErrDeposed)
			if err := <-s.running; !errors.Is(err, engine.ErrDeposed) {
				s.t.Errorf("the engine ended with %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSeatTest(t)
				s.takeOver()
				s.outlive(end)
				s.end()
			})
		})
	}
}

// outlive has the client wait in an engine that ends, and in the next one.
func (s *seatTest) outlive(end func(s *seatTest)) {
	s.t.Helper()
	lease := func(got *int) seatCall {
		return func(tx *engine.Tx) error {
			ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"orders"}, Count: 1, Block: time.Hour})
			*got = len(ds)
			return err
		}
	}
	s.done(s.submit(func(tx *engine.Tx) error { return tx.CreateQueue("orders", engine.QueueOptions{}) }), "")
	first, second := -1, -1
	waits := s.submit(lease(&first))
	synctest.Wait()
	queued := s.submit(nothing)
	synctest.Wait()
	if waits.Done() || queued.Done() || !s.client.Waits() {
		s.t.Fatal("the lease does not wait")
	}
	end(s)
	s.done(waits, "")
	if synctest.Wait(); !queued.Done() {
		s.t.Error("what was queued behind the lease is not answered")
	}
	s.Vacate()
	s.takeOver()
	again := s.submit(lease(&second))
	synctest.Wait()
	req := &engine.Enqueue{Queue: "orders", Payload: []byte("hello")}
	if err := s.Prepare(req); err != nil {
		s.t.Fatal(err)
	}
	other := &engine.Task{Client: engine.NewClient(2, func() {}), Call: seatCall(func(tx *engine.Tx) error {
		_, err := tx.Enqueue(req)
		return err
	})}
	s.Submit([]*engine.Task{other})
	s.done(other, "")
	s.done(again, "")
	if first != 0 || second != 1 {
		s.t.Errorf("%d messages of the engine that has ended and %d of the next, want 0 and 1", first, second)
	}
}

// Undoing what a client has not received must not keep a connection from ending.
func TestTasksOfNoClientNeverWaitForAnEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeatTest(t)
		before := s.Elapsed()
		task := &engine.Task{Call: seatCall(nothing)}
		s.Submit([]*engine.Task{task})
		if !task.Done() || task.Err() == nil || s.Elapsed() != before {
			t.Errorf("done: %v, %v, after %v", task.Done(), task.Err(), s.Elapsed()-before)
		}
	})
}

// The hub registers once, for every engine to come.
func TestEachEngineHasTheListenerAndTheWantedKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeatTest(t)
		var heard []string
		s.Listen(func(events []engine.Event) {
			for i := range events {
				if events[i].Kind == engine.EventLost {
					events[i].Queue = "(lost)"
				}
				heard = append(heard, events[i].Queue)
			}
		})
		s.Want(engine.EventCreated)
		create := func(name string) {
			t.Helper()
			s.done(s.submit(func(tx *engine.Tx) error { return tx.CreateQueue(name, engine.QueueOptions{}) }), "")
		}
		s.takeOver()
		create("a")
		s.Hold()
		s.end()
		s.Vacate()
		s.takeOver()
		create("b")
		s.Want(engine.EventDeleted)
		create("c")
		s.end()
		if got := strings.Join(heard, " "); got != "(lost) a.dlq a (lost) b.dlq b" {
			t.Errorf("heard of %q, want a and b with their dead-letter queues, and that events were lost before each", got)
		}
	})
}

func TestASeatWithoutAnEngineAnswersWhatNeedsNone(t *testing.T) {
	s := newSeat(time.Minute, nil)
	if _, ok := s.Snapshot().Get("key"); ok || s.Snapshot().Hooks() != 0 {
		t.Error("an empty snapshot has entries")
	}
	if _, err := s.Load([]*engine.Delivery{{Queue: "orders"}}); !errors.Is(err, engine.ErrNoMessage) {
		t.Errorf("Load: %v", err)
	}
	s.Leave(engine.NewClient(1, func() {}))
	select {
	case <-s.Ready():
	default:
		t.Error("connections wait although the node has started")
	}
}
