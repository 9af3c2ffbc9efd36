package fila_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fila "github.com/faisca/fila/adapters/go"
)

func ExampleGroup() {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("BROKER_ADDR"), MaxRetries: -1, ReadTimeout: 30 * time.Second})
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	imports := &fila.Queue{Client: client, Name: "example-imports"}
	reports := &fila.Queue{Client: client, Name: "example-reports"}
	handler := func(_ context.Context, job *fila.Job) ([]byte, error) {
		return []byte(fmt.Sprintf("%s of %s", job.Payload, job.Headers["fila-group-done"])), nil
	}
	ended := make(chan error)
	for _, q := range []*fila.Queue{imports, reports} {
		go func() { ended <- (&fila.Worker{Queue: q, Handler: handler}).Run(ctx) }()
	}

	group := &fila.Group{Client: client, Name: "example-7"}
	if _, err := group.Open(ctx, reports, fila.Message{Payload: []byte("summary")}, fila.GroupOptions{Expire: time.Hour}); err != nil {
		fmt.Println(err)
	}
	for _, page := range []string{"page-1", "page-2"} {
		if _, err := imports.Enqueue(ctx, fila.Message{Payload: []byte(page), Group: group.Name}); err != nil {
			fmt.Println(err)
		}
	}
	if _, err := group.Seal(ctx); err != nil {
		fmt.Println(err)
	}
	state, err := group.Wait(ctx)
	fmt.Println(state.State, state.Done, err)
	result, err := reports.Result(ctx, state.Message)
	fmt.Printf("%s, %v\n", result.Value, err)

	stop()
	<-ended
	<-ended
	// Output:
	// done 2 <nil>
	// summary of 2, <nil>
}

func TestAGroupWaitsUntilItIsCancelled(t *testing.T) {
	atLength(t)
	t.Parallel()
	client := connected(t)
	for _, protocol := range []int{2, 3} {
		o := options(os.Getenv("BROKER_ADDR"))
		o.Protocol = protocol
		client := redis.NewClient(o)
		t.Cleanup(func() { _ = client.Close() })
		q := &fila.Queue{Client: client, Name: "grouped", Settings: []any{"MAXATTEMPTS", 1}}
		g := &fila.Group{Client: client, Name: fmt.Sprintf("group-%d", protocol)}
		for _, want := range []bool{true, false} {
			if opened, err := g.Open(t.Context(), q, fila.Message{Payload: []byte("end"), Key: "acme"}, fila.GroupOptions{WhenDone: true}); opened != want || err != nil {
				t.Fatalf("opened %t, %v; want %t", opened, err, want)
			}
		}
		enqueue(t, q, fila.Message{Payload: []byte("member"), Group: g.Name})
		if n, err := g.Seal(t.Context()); n != 1 || err != nil {
			t.Errorf("sealed with %d pending, %v", n, err)
		}
		if _, err := q.Enqueue(t.Context(), fila.Message{Group: g.Name}); err == nil || !strings.Contains(err.Error(), "SEALED") {
			t.Errorf("a member of a sealed group: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if s, err := g.Wait(ctx); s != (fila.GroupState{State: "sealed", Members: 1, Pending: 1}) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it waits: %+v, %v", s, err)
		}
		cancel()
		for _, want := range []bool{true, false} {
			if cancelled, err := g.Cancel(t.Context()); cancelled != want || err != nil {
				t.Errorf("cancelled %t, %v; want %t", cancelled, err, want)
			}
		}
		if s, err := g.Wait(t.Context()); s.State != "cancelled" || err != nil {
			t.Errorf("it is %+v, %v", s, err)
		}
	}
	if _, err := (&fila.Group{Client: client, Name: "nothing"}).Get(t.Context()); !errors.Is(err, fila.ErrUnknown) {
		t.Errorf("of a group that never was: %v", err)
	}
}
