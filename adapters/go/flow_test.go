package fila_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fila "github.com/faisca/fila/adapters/go"
)

func TestAMessageHasAttemptsOfItsOwn(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "own-attempts", Settings: []any{"MAXATTEMPTS", 3, "BACKOFF", 60000}}
	var mu sync.Mutex
	tried := map[string]int{}
	started(t, &fila.Worker{Queue: q, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		name := string(job.Payload)
		if tried[name]++; name == "ever" && tried[name] == 5 {
			return []byte("at last"), nil
		}
		return nil, errors.New("refused")
	}})
	once := enqueue(t, q, fila.Message{Payload: []byte("once"), MaxAttempts: 1})
	ever := enqueue(t, q, fila.Message{Payload: []byte("ever"), MaxAttempts: -1, Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond})
	if r := within(t, q, once); r.Status != fila.Dead {
		t.Errorf("once: %+v", r)
	}
	if r := within(t, q, ever); string(r.Value) != "at last" {
		t.Errorf("ever: %+v", r)
	}
	mu.Lock()
	defer mu.Unlock()
	if !maps.Equal(tried, map[string]int{"once": 1, "ever": 5}) {
		t.Errorf("tried %v", tried)
	}
}

func TestTheLastMessageOfAnIDWins(t *testing.T) {
	atLength(t)
	t.Parallel()
	q := &fila.Queue{Client: connected(t), Name: "unique", Settings: []any{"VISIBILITY", 60000}}
	state := func(payload string) fila.Message {
		return fila.Message{Payload: []byte(payload), Key: "acme", Unique: "state:acme", UntilLease: true, Replace: true, Delay: time.Hour, MaxDelay: 300 * time.Millisecond}
	}
	first := enqueue(t, q, state("1"))
	if id := enqueue(t, q, state("2")); id != first {
		t.Errorf("the second is %s, the first %s", id, first)
	}
	plain := fila.Message{Payload: []byte("3"), Key: "acme", Unique: "state:acme"}
	if id := enqueue(t, q, plain); id != first {
		t.Errorf("the third is %s, the first %s", id, first)
	}
	begun, end := make(chan string, 2), make(chan struct{})
	started(t, &fila.Worker{Queue: q, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
		begun <- string(job.Payload) // MaxDelay has ended the hour
		<-end
		return job.Payload, nil
	}})
	if got := <-begun; got != "2" {
		t.Errorf("delivered: %s", got)
	}
	next := enqueue(t, q, state("4"))
	if next == first {
		t.Error("the id is not free while the message is leased")
	}
	close(end)
	if r := within(t, q, next); string(r.Value) != "4" {
		t.Errorf("the next: %+v", r)
	}
}

func TestProgressIsShownToTheProducer(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "progress"}
	id := enqueue(t, q, fila.Message{})
	said, end := make(chan error), make(chan struct{})
	started(t, &fila.Worker{Queue: q, Visibility: visibility, Handler: func(ctx context.Context, job *fila.Job) ([]byte, error) {
		said <- job.Progress(ctx, "3 of 7")
		said <- job.Progress(ctx, strings.Repeat("x", 1025))
		<-end
		return nil, nil
	}})
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	if err := <-said; err == nil || errors.Is(err, fila.ErrLeaseLost) {
		t.Errorf("more than 1 KiB: %v", err)
	}
	extended(t, client, "progress")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if r, err := q.Result(ctx, id); r.Progress != "3 of 7" || r.Status != fila.Pending {
		t.Errorf("while it is handled: %+v, %v", r, err)
	}
	close(end)
	if r := within(t, q, id); r.Status != fila.Done || r.Progress != "" {
		t.Errorf("the result is %+v", r)
	}
	if err := new(fila.Job).Progress(t.Context(), "of a test of the handler"); err != nil {
		t.Error(err)
	}
}

func TestAHeldThrottleKeepsItsMessages(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "held", Settings: []any{"BACKOFF", 0}}
	var mu sync.Mutex
	var at []time.Time
	started(t, &fila.Worker{Queue: q, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		switch {
		case len(at) == 1:
			return nil, fmt.Errorf("429: %w", fila.Hold("provider:held", 700*time.Millisecond, errors.New("too many")))
		case string(job.Payload) == "wrong":
			return nil, fila.Unrecoverable(fila.Hold("provider:other", time.Hour, errors.New("a throttle that it does not name")))
		}
		return nil, nil
	}})
	first := enqueue(t, q, fila.Message{Throttles: []string{"provider:held"}})
	until(t, "it has failed", func() bool { return info(t, client, "held", "nacked") == 1 })
	second := enqueue(t, q, fila.Message{Throttles: []string{"provider:held"}})
	for _, id := range []string{first, second} {
		if r := within(t, q, id); r.Status != fila.Done {
			t.Errorf("the result is %+v", r)
		}
	}
	mu.Lock()
	if len(at) != 3 || at[1].Sub(at[0]) < 690*time.Millisecond || at[2].Sub(at[0]) < 690*time.Millisecond {
		t.Errorf("delivered at %v", at)
	}
	mu.Unlock()
	if r := within(t, q, enqueue(t, q, fila.Message{Payload: []byte("wrong")})); r.Status != fila.Dead || r.Error != "a throttle that it does not name" {
		t.Errorf("the result is %+v", r)
	}
}

func TestABatchHasTheMessagesOfOneKey(t *testing.T) {
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "batches", Settings: []any{"MAXATTEMPTS", 1, "BATCH", 4, "BATCHWAIT", 500}}
	want := map[string]fila.Result{
		"a-0": {Status: fila.Done, Value: []byte("first")},
		"a-1": {Status: fila.Dead, Error: "not a number"},
		"a-2": {Status: fila.Done},
		"a-3": {Status: fila.Done},
		"b-0": {Status: fila.Done, Value: []byte("done before")},
		"b-1": {Status: fila.Dead, Error: "panic: out of range"},
		"b-2": {Status: fila.Dead, Error: "panic: out of range"},
	}
	ids := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		ids[name] = enqueue(t, q, fila.Message{Payload: []byte(name), Key: name[:1]})
	}
	var mu sync.Mutex
	var batches []string
	started(t, &fila.Worker{Queue: q, Batch: 10, BatchHandler: func(_ context.Context, jobs []*fila.Job) error {
		var names []string
		for _, job := range jobs {
			names = append(names, string(job.Payload))
		}
		mu.Lock()
		batches = append(batches, strings.Join(names, " "))
		mu.Unlock()
		if jobs[0].Key == "b" {
			if err := jobs[0].Ack([]byte("done before")); err != nil {
				t.Error(err)
			}
			panic("out of range")
		}
		if err := jobs[0].Ack([]byte("first")); err != nil {
			t.Error(err)
		}
		if err := jobs[1].Fail(errors.New("not a number")); err != nil {
			t.Error(err)
		}
		if err := jobs[1].Ack(nil); err == nil {
			t.Error("a message is acked that has failed")
		}
		return nil
	}})
	for name, r := range want {
		if got := within(t, q, ids[name]); got.Status != r.Status || string(got.Value) != string(r.Value) || got.Error != r.Error {
			t.Errorf("%s: %+v, want %+v", name, got, r)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(batches)
	if !slices.Equal(batches, []string{"a-0 a-1 a-2 a-3", "b-0 b-1 b-2"}) {
		t.Errorf("the batches are %q", batches)
	}
	if err := (&fila.Worker{Queue: q, Handler: func(context.Context, *fila.Job) ([]byte, error) { return nil, nil }, BatchHandler: func(context.Context, []*fila.Job) error { return nil }}).Run(t.Context()); err == nil {
		t.Error("a worker with two handlers runs")
	}
}

func TestALostLeaseOfABatchLeavesTheOthers(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "lost-batch"}
	var ids []string
	for range 3 {
		ids = append(ids, enqueue(t, q, fila.Message{}))
	}
	var reported atomic.Int64
	noticed, cause := make(chan bool, 1), make(chan error, 1)
	started(t, &fila.Worker{Queue: q, Visibility: visibility, OnError: func(error) { reported.Add(1) }, BatchHandler: func(ctx context.Context, jobs []*fila.Job) error {
		for !jobs[1].Lost() {
			time.Sleep(10 * time.Millisecond)
		}
		if err := jobs[1].Progress(ctx, "too late"); !errors.Is(err, fila.ErrLeaseLost) {
			t.Errorf("progress of a lost message: %v", err)
		}
		if err := jobs[1].Ack(nil); !errors.Is(err, fila.ErrLeaseLost) {
			t.Errorf("an ack of a lost message: %v", err)
		}
		if err := jobs[0].Ack([]byte("kept")); err != nil {
			t.Error(err)
		}
		noticed <- ctx.Err() == nil && !jobs[2].Lost()
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil
	}})
	until(t, "they are leased", func() bool { return info(t, client, "lost-batch", "leased") == 3 })
	cancelled := func(id string) {
		if err := client.Do(t.Context(), "FILA.CANCEL", "lost-batch", id).Err(); err != nil {
			t.Fatal(err)
		}
	}
	cancelled(ids[1])
	if !<-noticed {
		t.Error("the other leases were lost, too")
	}
	if r := within(t, q, ids[0]); string(r.Value) != "kept" {
		t.Errorf("the result is %+v", r)
	}
	cancelled(ids[2])
	if err := <-cause; !errors.Is(err, fila.ErrLeaseLost) {
		t.Errorf("the context ended with %v", err)
	}
	if n := reported.Load(); n != 2 {
		t.Errorf("%d errors were reported", n)
	}
}

func TestWhatABatchHasAckedBeforeAKillStaysDone(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	q := &fila.Queue{Client: client, Name: "killed-batch", Settings: []any{"BACKOFF", 0}}
	var ids []string
	for range 3 {
		ids = append(ids, enqueue(t, q, fila.Message{Payload: []byte("1h 0s")}))
	}
	killed, line := worker(t, "killed-batch", "WORKER_BATCH=1")
	if got := line(); got != "begun 3" {
		t.Fatal(got)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if r := within(t, q, ids[0]); string(r.Value) != "first" {
		t.Errorf("the result is %+v", r)
	}
	_, other := worker(t, "killed-batch", "WORKER_BATCH=1")
	if got := other(); got != "begun 2" && got != "begun 1" { // they come back one after the other
		t.Error(got)
	}
	for _, id := range ids {
		if r := within(t, q, id); r.Status != fila.Done {
			t.Errorf("the result is %+v", r)
		}
	}
	if acked := info(t, client, "killed-batch", "acked"); acked != 3 {
		t.Errorf("%d are acked", acked)
	}
}
