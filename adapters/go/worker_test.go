package fila_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fila "github.com/faisca/fila/adapters/go"
)

// started runs a worker until stop is called, or the test ends.
func started(t *testing.T, w *fila.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// within returns the result of a message.
func within(t *testing.T, q *fila.Queue, id string) fila.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	defer cancel()
	r, err := q.Result(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func enqueue(t *testing.T, q *fila.Queue, m fila.Message) string {
	t.Helper()
	id, err := q.Enqueue(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// The end of a message whose handler returns nothing is known to a client that waits for it afterwards.
func TestNothingIsAResult(t *testing.T) {
	t.Parallel()
	q := &fila.Queue{Client: connected(t), Name: "nothing"}
	handled := make(chan struct{})
	stop := started(t, &fila.Worker{Queue: q, Handler: func(context.Context, *fila.Job) ([]byte, error) {
		close(handled)
		return nil, nil
	}})
	id := enqueue(t, q, fila.Message{})
	<-handled
	stop() // it has acked
	if r := within(t, q, id); r.Status != fila.Done || r.Value != nil || r.Error != "" {
		t.Errorf("the result is %+v", r)
	}
}

func TestAWorkerHandlesMessagesAndAnswersThem(t *testing.T) {
	t.Parallel()
	client := connected(t)
	for _, protocol := range []int{2, 3} {
		o := options(os.Getenv("BROKER_ADDR"))
		o.Protocol = protocol
		client := redis.NewClient(o)
		t.Cleanup(func() { _ = client.Close() })
		q := &fila.Queue{Client: client, Name: fmt.Sprintf("jobs-%d", protocol), Settings: []any{"MAXATTEMPTS", 7}}
		var got *fila.Job
		id := enqueue(t, q, fila.Message{
			Payload: []byte("hello\r\n\x00\xff"), Key: "acme", Throttles: []string{"a", "b"}, Headers: map[string]string{"lang": "en"},
			TTL: time.Hour, Dedup: "one", Options: []any{"PRIORITY", 7},
		})
		if again := enqueue(t, q, fila.Message{Dedup: "one"}); again != id {
			t.Errorf("the second message with the id is %s, the first %s", again, id)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if r, err := q.Result(ctx, id); r.Status != fila.Pending || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before it is handled: %+v, %v", r, err)
		}
		cancel()
		stop := started(t, &fila.Worker{Queue: q, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
			got = job
			return job.Payload, nil
		}})
		if r := within(t, q, id); r.Status != fila.Done || string(r.Value) != "hello\r\n\x00\xff" || r.Error != "" {
			t.Errorf("the result is %+v", r)
		}
		stop()
		if got.ID != id || got.Key != "acme" || got.Attempt != 1 || got.Queue != q.Name || !maps.Equal(got.Headers, map[string]string{"lang": "en"}) {
			t.Errorf("the job is %+v", got)
		}
		if n := info(t, connected(t), q.Name, "max_attempts"); n != 7 {
			t.Errorf("the queue has %d attempts", n)
		}
	}
	q := &fila.Queue{Client: client, Name: "jobs-2"}
	if _, err := q.Result(t.Context(), "019b76da-a800-7a3c-8f00-4b1a52c5d0e1"); !errors.Is(err, fila.ErrUnknown) {
		t.Errorf("of a message that never was: %v", err)
	}
	if _, err := q.Result(t.Context(), "x"); err == nil || errors.Is(err, fila.ErrUnknown) {
		t.Errorf("of what is no id: %v", err)
	}
	if err := new(fila.Worker).Run(t.Context()); err == nil {
		t.Error("a worker without a queue runs")
	}
}

func TestFailuresAreTriedAgainUntilTheyAreDead(t *testing.T) {
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "failures", Settings: []any{"MAXATTEMPTS", 2, "BACKOFF", 20}}
	var mu sync.Mutex
	times := map[string][]time.Time{}
	started(t, &fila.Worker{Queue: q, Concurrency: 2, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		name := string(job.Payload)
		times[name] = append(times[name], time.Now())
		switch {
		case name == "dead":
			return nil, fila.Unrecoverable(errors.New("no such order"))
		case name == "later" && job.Attempt == 1:
			return nil, fmt.Errorf("busy: %w", fila.RetryAfter(300*time.Millisecond, errors.New("try later")))
		case name == "panic":
			panic("out of range")
		case name == "broken":
			return nil, errors.New("not a number")
		}
		return []byte("done"), nil
	}})
	want := map[string]fila.Result{
		"dead":   {Status: fila.Dead, Error: "no such order"},
		"later":  {Status: fila.Done, Value: []byte("done")},
		"panic":  {Status: fila.Dead, Error: "panic: out of range"},
		"broken": {Status: fila.Dead, Error: "not a number"},
	}
	ids := map[string]string{}
	for name := range want {
		ids[name] = enqueue(t, q, fila.Message{Payload: []byte(name)})
	}
	for name, r := range want {
		if got := within(t, q, ids[name]); !reflect.DeepEqual(got, r) {
			t.Errorf("%s: %+v, want %+v", name, got, r)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(times["dead"]) != 1 || len(times["broken"]) != 2 || len(times["later"]) != 2 || times["later"][1].Sub(times["later"][0]) < 290*time.Millisecond {
		t.Errorf("tried at %v", times)
	}
	if n := info(t, client, "failures.dlq", "dead"); n != 3 {
		t.Errorf("%d messages are in the dead-letter queue", n)
	}
}

func TestAWorkerWaitsForItsQueueAndForDelayedMessages(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "delayed"}
	var failed atomic.Int64
	started(t, &fila.Worker{Queue: q, OnError: func(error) { failed.Add(1) }, Handler: func(context.Context, *fila.Job) ([]byte, error) {
		return []byte(time.Now().Format(time.RFC3339Nano)), nil
	}})
	at := time.Now().Add(500 * time.Millisecond)
	r := within(t, q, enqueue(t, q, fila.Message{Delay: 500 * time.Millisecond}))
	if got, err := time.Parse(time.RFC3339Nano, string(r.Value)); err != nil || got.Before(at.Add(-2*time.Millisecond)) {
		t.Errorf("delivered at %s, %v, due at %s", r.Value, err, at)
	}
	if n := failed.Load(); n != 0 {
		t.Errorf("%d errors", n)
	}
}

func TestLeasesAreExtended(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "long"}
	var working, most, done atomic.Int64
	end := make(chan struct{})
	for range 5 {
		enqueue(t, q, fila.Message{})
	}
	started(t, &fila.Worker{Queue: q, Concurrency: 3, Visibility: visibility, Handler: func(context.Context, *fila.Job) ([]byte, error) {
		n := working.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-end
		working.Add(-1)
		done.Add(1)
		return nil, nil
	}})
	until(t, "three are handled", func() bool { return working.Load() == 3 })
	extended(t, client, "long")
	if w, ready, expired := working.Load(), info(t, client, "long", "ready"), info(t, client, "long", "expired"); w != 3 || ready != 2 || expired != 0 {
		t.Errorf("%d are handled, %d ready, %d expired", w, ready, expired)
	}
	close(end)
	until(t, "all are done", func() bool { return done.Load() == 5 })
	if most.Load() != 3 {
		t.Errorf("%d were handled at a time", most.Load())
	}
}

func TestALostLeaseEndsTheContextOfTheHandler(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "lost"}
	causes := make(chan error, 1)
	started(t, &fila.Worker{Queue: q, Visibility: 600 * time.Millisecond, Handler: func(ctx context.Context, _ *fila.Job) ([]byte, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}})
	id := enqueue(t, q, fila.Message{})
	until(t, "it is leased", func() bool { return info(t, client, "lost", "leased") == 1 })
	if err := client.Do(t.Context(), "FILA.CANCEL", "lost", id).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-causes; !errors.Is(err, fila.ErrLeaseLost) {
		t.Errorf("the context ended with %v", err)
	}
}

func TestTheTraceGoesOn(t *testing.T) {
	atLength(t)
	t.Parallel()
	const header, trace = "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	client := connected(t)
	first, second := &fila.Queue{Client: client, Name: "first"}, &fila.Queue{Client: client, Name: "second"}
	started(t, &fila.Worker{Queue: first, Handler: func(ctx context.Context, _ *fila.Job) ([]byte, error) {
		id, err := second.Enqueue(ctx, fila.Message{})
		return []byte(id), err
	}})
	started(t, &fila.Worker{Queue: second, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
		return []byte(job.Headers[header]), nil
	}})
	r := within(t, first, enqueue(t, first, fila.Message{Headers: map[string]string{header: trace}}))
	if got := within(t, second, string(r.Value)); string(got.Value) != trace {
		t.Errorf("the second message has the trace %q", got.Value)
	}
}

func TestAQuietTenantIsServedBehindAHundredNoisyOnes(t *testing.T) {
	atLength(t)
	t.Parallel()
	q := &fila.Queue{Client: connected(t), Name: "tenants"}
	var noise sync.WaitGroup
	for n := range 100 {
		noise.Go(func() {
			for range 10 {
				enqueue(t, q, fila.Message{Key: fmt.Sprint("noisy-", n)})
			}
		})
	}
	noise.Wait()
	id := enqueue(t, q, fila.Message{Key: "quiet"})
	var order []string
	stop := started(t, &fila.Worker{Queue: q, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
		order = append(order, job.Key)
		return []byte("done"), nil
	}})
	within(t, q, id)
	stop()
	if before := slices.Index(order, "quiet"); before > 100 {
		t.Errorf("%d messages were before it", before)
	}
}

// worker starts a worker in a process of its own, whose lines it returns one by one.
func worker(t *testing.T, queue string, env ...string) (cmd *exec.Cmd, line func() string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), "WORKER_OF="+queue), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	return cmd, func() string {
		lines.Scan()
		return lines.Text()
	}
}

func TestTheMessageOfAKilledWorkerIsHandledByAnother(t *testing.T) {
	atLength(t)
	t.Parallel()
	q := &fila.Queue{Client: connected(t), Name: "killed", Settings: []any{"BACKOFF", 0}}
	id := enqueue(t, q, fila.Message{Payload: []byte("1h 0s")})
	killed, line := worker(t, "killed")
	if got := line(); got != "begun 1" {
		t.Fatal(got)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, other := worker(t, "killed")
	if begun, done := other(), other(); begun != "begun 2" || done != "done" {
		t.Errorf("the other worker has printed %q, %q", begun, done)
	}
	if r := within(t, q, id); string(r.Value) != "slept" {
		t.Errorf("the result is %+v", r)
	}
}

func TestAWorkerEndsInOrderAtSIGTERM(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "stopped"}
	for range 2 {
		enqueue(t, q, fila.Message{})
	}
	cmd, line := worker(t, "stopped")
	if got := line(); got != "begun 1" {
		t.Fatal(got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := line(); got != "ending" {
		t.Fatal(got)
	}
	extended(t, client, "stopped")
	if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	if done, ended := line(), line(); done != "done" || ended != "ended" {
		t.Errorf("after the signal it has printed %q, %q", done, ended)
	}
	if acked, ready, leased := info(t, client, "stopped", "acked"), info(t, client, "stopped", "ready"), info(t, client, "stopped", "leased"); acked != 1 || ready != 1 || leased != 0 {
		t.Errorf("%d are acked, %d ready, %d leased", acked, ready, leased)
	}
}

func TestAWorkerGoesOnWhenTheBrokerWasKilled(t *testing.T) {
	atLength(t)
	t.Parallel()
	b := &broker{dir: t.TempDir()}
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.kill() })
	client := redis.NewClient(options(b.addr))
	t.Cleanup(func() { _ = client.Close() })
	q := &fila.Queue{Client: client, Name: "jobs"}
	var mu sync.Mutex
	got := map[string]bool{}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
	var failed atomic.Int64
	started(t, &fila.Worker{Queue: q, Concurrency: 2, Visibility: time.Second, OnError: func(error) { failed.Add(1) }, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		got[string(job.Payload)] = true
		return nil, nil
	}})
	enqueue(t, q, fila.Message{Payload: []byte("before")})
	until(t, "the first is done", func() bool { return count() == 1 })
	for n := range 5 {
		enqueue(t, q, fila.Message{Payload: fmt.Append(nil, n), Delay: 500 * time.Millisecond})
	}
	b.kill()
	until(t, "the worker notices", func() bool { return failed.Load() > 0 })
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	until(t, "all are done", func() bool { return count() == 6 })
}
