package fila_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	fila "github.com/faisca/fila/adapters/go"
)

func Example() {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("BROKER_ADDR"), MaxRetries: -1, ReadTimeout: 30 * time.Second})
	defer client.Close()
	reports := &fila.Queue{Client: client, Name: "reports", Settings: []any{"MAXATTEMPTS", 5}}

	// The worker, until SIGTERM.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	worker := &fila.Worker{Queue: reports, Concurrency: 4, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
		return []byte(fmt.Sprintf("the report of %s for %s", job.Payload, job.Key)), nil
	}}
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()

	// The producer.
	id, err := reports.Enqueue(ctx, fila.Message{Payload: []byte("2026-11"), Key: "acme", Throttles: []string{"provider:x"}})
	if err != nil {
		fmt.Println(err)
	}
	result, err := reports.Result(ctx, id)
	fmt.Printf("%s: %s, %v\n", result.Status, result.Value, err)

	stop()
	fmt.Println(<-ended)
	// Output:
	// done: the report of 2026-11 for acme, <nil>
	// <nil>
}
