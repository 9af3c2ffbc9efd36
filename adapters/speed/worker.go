// Speed runs a worker of the adapter for Go, or one of asynq on Redis, each with eight jobs at a time, for the comparison
// of adapters/speed. With a number it enqueues so many jobs instead.
//
//	speed fila|redis [JOBS]
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	fila "github.com/faisca/fila/adapters/go"
)

const atATime = 8

func main() {
	if err := run(context.Background(), os.Args[1:], "127.0.0.1:"+os.Getenv("PORT"), os.Getenv("NOTES")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, addr, notes string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: speed fila|redis [JOBS]")
	}
	queue := &fila.Queue{Client: redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}), Name: "default"}
	if len(args) > 1 {
		jobs, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		put := func() error { _, err := queue.Enqueue(ctx, fila.Message{}); return err }
		if args[0] == "redis" {
			client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
			put = func() error { _, err := client.Enqueue(asynq.NewTask("note", nil)); return err }
		}
		return enqueue(jobs, put)
	}
	f, err := os.OpenFile(notes, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	note := func() error { _, err := f.WriteString("."); return err }
	if args[0] == "redis" {
		return asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, asynq.Config{Concurrency: atATime, LogLevel: asynq.ErrorLevel}).
			Run(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return note() }))
	}
	worker := &fila.Worker{Queue: queue, Concurrency: atATime, Handler: func(context.Context, *fila.Job) ([]byte, error) { return nil, note() }}
	return worker.Run(ctx)
}

// enqueue calls put for each of the jobs, in eight goroutines.
func enqueue(jobs int, put func() error) error {
	if err := put(); err != nil { // creates the queue
		return err
	}
	work := make(chan struct{}, jobs)
	for range jobs - 1 {
		work <- struct{}{}
	}
	close(work)
	var all sync.WaitGroup
	failed := make(chan error, atATime)
	for range atATime {
		all.Go(func() {
			for range work {
				if err := put(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}
