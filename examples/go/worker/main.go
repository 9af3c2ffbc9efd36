// Worker does jobs until SIGTERM or Ctrl-C, with go-redis.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// block is how long it may take to see that it is to stop.
const block = 2 * time.Second

// A worker takes jobs from a queue, one at a time.
type worker struct {
	fila  *redis.Client
	queue string
	lease time.Duration
}

func main() {
	ms, err := strconv.Atoi(cmp.Or(os.Getenv("FILA_LEASE_MS"), "30000"))
	if err != nil {
		log.Fatal(err)
	}
	w := &worker{
		fila: redis.NewClient(&redis.Options{
			Addr:        cmp.Or(os.Getenv("FILA_HOST"), "127.0.0.1") + ":" + cmp.Or(os.Getenv("FILA_PORT"), "5555"),
			ReadTimeout: block + 5*time.Second, // longer than any call may take
			MaxRetries:  -1,                    // a lease that is asked for twice may be two
		}),
		queue: cmp.Or(os.Getenv("FILA_QUEUE"), "jobs"),
		lease: time.Duration(ms) * time.Millisecond,
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	for stop.Err() == nil {
		// What is begun is finished: no call ends because of the signal.
		if err := w.next(context.Background()); err != nil {
			log.Print(err)
			time.Sleep(time.Second)
		}
	}
}

// next waits for a message and handles it, or returns after a while without one.
func (w *worker) next(ctx context.Context) error {
	messages, err := w.fila.Do(ctx, "FILA.LEASE", w.queue, "BLOCK", block.Milliseconds(), "VISIBILITY", w.lease.Milliseconds()).Slice()
	if err != nil {
		return err
	}
	for _, m := range messages {
		fields, _ := m.([]any) // receipt, payload, headers, key, attempt, deliveries, ...
		receipt, job := fields[0], fmt.Sprint(fields[1])
		if err := w.kept(ctx, receipt, func() error { return work(job) }); err != nil {
			return w.fila.Do(ctx, "FILA.NACK", w.queue, receipt, "ERROR", err.Error()).Err()
		}
		if err := w.fila.Do(ctx, "FILA.ACK", w.queue, receipt).Err(); err != nil {
			return err
		}
	}
	return nil
}

// kept extends a lease for as long as do takes.
func (w *worker) kept(ctx context.Context, receipt any, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	tick := time.NewTicker(w.lease / 3)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if err := w.fila.Do(ctx, "FILA.EXTEND", w.queue, receipt, w.lease.Milliseconds()).Err(); err != nil {
				log.Print(err)
			}
		}
	}
}

func work(job string) error {
	verb, rest, _ := strings.Cut(job, " ")
	switch verb {
	case "say":
		fmt.Println(rest)
		return nil
	case "sleep":
		seconds, err := strconv.ParseFloat(rest, 64)
		time.Sleep(time.Duration(seconds * float64(time.Second)))
		return err
	}
	return errors.New(rest)
}
