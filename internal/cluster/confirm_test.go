package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// fakeVoters answers questions about terms over pipes.
type fakeVoters struct {
	mu    sync.Mutex
	terms map[string]uint64
	gates map[string]chan struct{} // an answer leaves when it can receive
	asked int
	over  <-chan struct{}
}

func (f *fakeVoters) set(id string, term uint64) {
	f.mu.Lock()
	f.terms[id] = term
	f.mu.Unlock()
}

func (f *fakeVoters) questions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fakeVoters) dial(_ context.Context, addr string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go answerQuestions(theirs, "leader", func(string, question, []byte) ([]byte, error) {
		f.mu.Lock()
		f.asked++
		answer, gate := termAnswer{term: f.terms[addr]}, f.gates[addr]
		f.mu.Unlock()
		if gate != nil {
			select {
			case gate <- struct{}{}:
			case <-f.over:
			}
		}
		return answer.append(nil), nil
	})
	return ours, nil
}

// leaderOf returns the confirmer of node a in term 5, with voters a, b and c.
func leaderOf(t *testing.T, f *fakeVoters) *confirmer {
	t.Helper()
	c := &confirmer{
		term: 5, self: "a", wait: time.Minute, dial: f.dial,
		own:    func() uint64 { f.mu.Lock(); defer f.mu.Unlock(); return f.terms["a"] },
		voters: func() []Peer { return []Peer{{"a", "a"}, {"b", "b"}, {"c", "c"}} },
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.over = ctx.Done()
	c.start(ctx)
	t.Cleanup(func() {
		cancel()
		c.stop()
	})
	return c
}

func TestAMajorityInTheTermConfirms(t *testing.T) {
	for name, x := range map[string]struct {
		a, b, c uint64
		want    error
	}{
		"all":                 {5, 5, 5, nil},
		"one is behind":       {5, 5, 4, nil},
		"one is ahead":        {5, 6, 5, storage.ErrDeposed},
		"both are ahead":      {5, 6, 6, storage.ErrDeposed},
		"this node is ahead":  {6, 5, 5, storage.ErrDeposed},
		"behind, and a later": {5, 4, 6, storage.ErrDeposed},
	} {
		f := &fakeVoters{terms: map[string]uint64{"a": x.a, "b": x.b, "c": x.c}, gates: map[string]chan struct{}{}}
		c := leaderOf(t, f)
		if x.b != x.c && x.want != nil { // either answer may come first: the one that is in the term alone confirms
			f.set("b", max(x.b, x.c))
			f.set("c", max(x.b, x.c))
		}
		if err := c.confirm(context.Background()); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutAMajorityAConfirmationWaits(t *testing.T) {
	f := &fakeVoters{terms: map[string]uint64{"a": 5, "b": 4, "c": 4}}
	c := leaderOf(t, f)
	done := make(chan error)
	go func() { done <- c.confirm(context.Background()) }()
	testkit.Eventually(t, "questions asked again", func() bool { return f.questions() > 6 })
	select {
	case err := <-done:
		t.Fatalf("confirmed by voters that may still vote for another: %v", err)
	default:
	}
	f.set("c", 5)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.set("c", 4)
	go func() { done <- c.confirm(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, storage.ErrDeposed) {
		t.Fatalf("after the leadership: %v", err)
	}
}

// What was answered to an earlier question says nothing about now.
func TestAnAnswerServesOnlyTheCallsBeforeItsQuestion(t *testing.T) {
	gate := make(chan struct{})
	f := &fakeVoters{terms: map[string]uint64{"a": 5, "b": 5, "c": 4}, gates: map[string]chan struct{}{"b": gate}}
	c := leaderOf(t, f)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- c.confirm(context.Background()) }()
	testkit.Eventually(t, "the first question", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.asked > 0 })
	testkit.Eventually(t, "the answer of b is ready", func() bool {
		select {
		case <-gate:
			return true
		default:
			return false
		}
	})
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	go func() { second <- c.confirm(context.Background()) }()
	testkit.Eventually(t, "the second round", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.round == 2 })
	select {
	case err := <-second:
		t.Fatalf("confirmed by the answer to an earlier question: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	<-gate
	if err := <-second; err != nil {
		t.Fatal(err)
	}
}

func TestOneQuestionServesAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		f := &fakeVoters{terms: map[string]uint64{"a": 5, "b": 5, "c": 5}, gates: map[string]chan struct{}{"b": gate, "c": gate}}
		c := leaderOf(t, f)
		const calls = 500
		done := make(chan error, calls)
		go func() { done <- c.confirm(context.Background()) }()
		time.Sleep(hedgeAfter)
		synctest.Wait()
		if n := f.questions(); n != 2 {
			t.Fatalf("%d voters were asked", n)
		}
		for range calls - 1 {
			go func() { done <- c.confirm(context.Background()) }()
		}
		synctest.Wait()
		over := make(chan struct{})
		defer close(over)
		go func() {
			for {
				select {
				case <-gate:
				case <-over:
					return
				}
			}
		}()
		for range calls {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		// One for each voter began before the other calls, and one for each serves these.
		if n := f.questions(); n > 4 {
			t.Errorf("%d calls needed %d questions", calls, n)
		}
	})
}

// patient is a connection that has no deadline: as one whose answer has come before it.
type patient struct{ net.Conn }

func (patient) SetDeadline(time.Time) error { return nil }

// A process that was stopped while it asked finds the answer in its socket when it goes on. Another
// node may have led since.
func TestAnAnswerOfLongAgoConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeVoters{terms: map[string]uint64{"a": 5, "b": 5}, gates: map[string]chan struct{}{"b": make(chan struct{})}}
		c := leaderOf(t, f)
		c.wait = time.Second
		c.voters = func() []Peer { return []Peer{{"a", "a"}, {"b", "b"}} }
		c.dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := f.dial(ctx, addr)
			return patient{conn}, err
		}
		confirmed := make(chan error, 1)
		go func() { confirmed <- c.confirm(context.Background()) }()
		synctest.Wait()
		time.Sleep(c.wait + time.Millisecond)
		<-f.gates["b"] // the answer to the first question
		synctest.Wait()
		select {
		case err := <-confirmed:
			t.Fatalf("confirmed by it: %v", err)
		default:
		}
		time.Sleep(againAfter)
		synctest.Wait()
		time.Sleep(c.wait)
		<-f.gates["b"] // that to the second one, which is in time
		if err := <-confirmed; err != nil || f.questions() != 2 {
			t.Errorf("after %d questions: %v", f.questions(), err)
		}
	})
}

// An answer costs CPU on both nodes, so no more voters are asked than a majority needs, as long as they answer.
func TestNoMoreVotersAreAskedThanAMajorityNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		f := &fakeVoters{terms: map[string]uint64{"a": 5, "b": 5, "c": 5}, gates: map[string]chan struct{}{}}
		c := leaderOf(t, f)
		confirm := func(what string, questions int, took time.Duration) {
			t.Helper()
			before, began := f.questions(), time.Now()
			if err := c.confirm(context.Background()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			synctest.Wait()
			if n, d := f.questions()-before, time.Since(began); n != questions || d != took {
				t.Errorf("%s: %d questions took %v, want %d and %v", what, n, d, questions, took)
			}
		}
		for range 10 {
			confirm("all answer", 1, 0)
		}
		f.mu.Lock()
		f.gates["b"] = late
		f.mu.Unlock()
		confirm("one is late", 2, hedgeAfter)
		for range 10 {
			confirm("it is known to be late", 1, 0)
		}
		f.mu.Lock()
		delete(f.gates, "b")
		f.gates["c"] = make(chan struct{})
		f.mu.Unlock()
		<-late // b has answered
		synctest.Wait()
		confirm("it answers again, and the other one does not", 1, 0)
	})
}
