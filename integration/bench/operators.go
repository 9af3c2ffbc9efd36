package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/faisca/fila/internal/bench"
)

// This file measures what other clients wait for while operators look at a large broker: scrapes,
// live figures and fila top at very many keys and queues, searches for one of very many messages,
// and the redrive of one group of errors. Another client enqueues, leases and acks meanwhile, one
// message after the other, and each of its commands is timed.

const (
	manyQueue = "many" // has a message in each of its keys
	deadQueue = manyQueue + ".dlq"
)

// operatorBench holds the flags and the state of the benchmark.
type operatorBench struct {
	*common

	keys, queues int
	rounds       int
	length       time.Duration

	*server
	admin string      // address of the admin listener
	conn  *bench.Conn // of the operator
}

func prepareOperators(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &operatorBench{common: c}
	flags.IntVar(&o.keys, "keys", 1_000_000, "`keys` of one queue, with a message each")
	flags.IntVar(&o.queues, "queues", 10_000, "other `queues`, with a message each")
	flags.IntVar(&o.rounds, "rounds", 3, "`rounds`, each without and with what watches")
	flags.DurationVar(&o.length, "for", 20*time.Second, "`duration` of a round")
	return o.run
}

func (o *operatorBench) run(ctx context.Context) error {
	if o.keys < 1000 || o.queues < 1 || o.rounds < 1 {
		return fmt.Errorf("-keys %d -queues %d -rounds %d: want at least 1000, one and one", o.keys, o.queues, o.rounds)
	}
	addr, args, err := scrapeArgs()
	if err != nil {
		return err
	}
	if o.server, err = o.startServer(ctx, o.bin, args...); err != nil {
		return err
	}
	defer o.end()
	o.admin = addr
	if o.conn, err = bench.Dial(ctx, o.Addr()); err != nil {
		return err
	}
	defer o.conn.Close()
	for _, part := range []func(context.Context) error{o.fill, o.watched, o.once, o.searched, o.killed, o.redriven} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return o.Stop()
}

// pipeline sends n commands in portions. It ends with the first error among the replies.
func (o *operatorBench) pipeline(ctx context.Context, n int, command func(i int) []string) error {
	for from := 0; from < n; from += pipelined {
		to := min(from+pipelined, n)
		for i := from; i < to; i++ {
			o.conn.Append(command(i)...)
		}
		if err := o.conn.Flush(); err != nil {
			return err
		}
		for range to - from {
			if _, err := o.conn.Reply(); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// fill creates the queues and the keys. One message in the middle has what is searched for.
func (o *operatorBench) fill(ctx context.Context) error {
	began := time.Now()
	create := func(i int) []string { return []string{"FILA.QUEUE", "CREATE", fmt.Sprint("queue-", i), "NODLQ"} }
	if err := o.pipeline(ctx, o.queues, create); err != nil {
		return err
	}
	enqueue := func(i int) []string { return []string{"FILA.ENQUEUE", fmt.Sprint("queue-", i), "hello"} }
	if err := o.pipeline(ctx, o.queues, enqueue); err != nil {
		return err
	}
	for _, command := range [][]string{{"FILA.QUEUE", "CREATE", manyQueue}, {"FILA.QUEUE", "CREATE", benchQueue, "NODLQ"}} {
		if _, err := o.conn.Do(command...); err != nil {
			return err
		}
	}
	enqueue = func(i int) []string {
		payload, trace := fmt.Sprintf(`{"order":%d,"name":"customer"}`, i), fmt.Sprint("trace-", i)
		if i == o.keys/2 {
			payload, trace = `{"order":0,"name":"needle"}`, "needle"
		}
		return []string{"FILA.ENQUEUE", manyQueue, payload, "KEY", fmt.Sprint("tenant-", i), "HEADER", "trace", trace}
	}
	if err := o.pipeline(ctx, o.keys, enqueue); err != nil {
		return err
	}
	say("%d keys with a message each, %d other queues, storage.sync %s, filled in %.0f s", o.keys, o.queues, o.sync, time.Since(began).Seconds())
	return nil
}

// probe is the other client. It times each command.
type probe struct{ times []time.Duration }

// during runs the other client while act runs.
func (p *probe) during(ctx context.Context, addr string, act func(context.Context) error) error {
	c, err := bench.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	over, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-over:
				failed <- nil
				return
			default:
			}
			if err := p.cycle(c); err != nil {
				failed <- err
				return
			}
			time.Sleep(200 * time.Microsecond)
		}
	}()
	err = act(ctx)
	close(over)
	if lost := <-failed; err == nil {
		err = lost
	}
	return err
}

// cycle enqueues, leases and acks a message.
func (p *probe) cycle(c *bench.Conn) error {
	if _, err := p.do(c, "FILA.ENQUEUE", benchQueue, "hello"); err != nil {
		return err
	}
	leased, err := p.do(c, "FILA.LEASE", benchQueue)
	if err != nil {
		return err
	}
	messages, _ := leased.([]any)
	if len(messages) != 1 {
		return fmt.Errorf("the other client leased %d messages, want 1", len(messages))
	}
	message, _ := messages[0].([]any)
	receipt, _ := message[0].(string)
	_, err = p.do(c, "FILA.ACK", benchQueue, receipt)
	return err
}

func (p *probe) do(c *bench.Conn, args ...string) (any, error) {
	began := time.Now()
	reply, err := c.Do(args...)
	p.times = append(p.times, time.Since(began))
	return reply, err
}

// report prints how long the commands took.
func (p *probe) report(name string) {
	slices.Sort(p.times)
	at := func(part float64) time.Duration {
		return p.times[int(float64(len(p.times)-1)*part)].Round(10 * time.Microsecond)
	}
	say("  %-24s a command of another client: median %8s  p99 %8s  p99.99 %8s  longest %8s  (%d)", name, at(0.5), at(0.99), at(0.9999), at(1), len(p.times))
}

// measured runs act beside the other client, and reports both.
func (o *operatorBench) measured(ctx context.Context, name string, act func(context.Context) (string, error)) error {
	var p probe
	var result string
	began := time.Now()
	err := p.during(ctx, o.Addr(), func(ctx context.Context) (err error) {
		result, err = act(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	say("%s: %s, %.1f s", name, result, time.Since(began).Seconds())
	p.report("meanwhile")
	return nil
}

// searched searches the queue by header and by payload.
func (o *operatorBench) searched(ctx context.Context) error {
	if err := o.search(ctx, "search by header", manyQueue, "HEADER", "trace", "needle"); err != nil {
		return err
	}
	return o.search(ctx, "search by payload", manyQueue, "PAYLOAD", `"needle"`)
}

// pageSize is the COUNT of a page of a search.
const pageSize = 10_000

// search walks through a queue, and must find one message. Between two pages it ends with ctx.
func (o *operatorBench) search(ctx context.Context, name, queue string, filter ...string) error {
	return o.measured(ctx, name, func(ctx context.Context) (string, error) {
		found, pages, foundAt := 0, 0, 0
		for cursor := ""; cursor != "0" && ctx.Err() == nil; pages++ {
			if cursor == "" {
				cursor = "0"
			}
			reply, err := o.conn.Do(append([]string{"FILA.BROWSE", queue, "COUNT", strconv.Itoa(pageSize), "CURSOR", cursor}, filter...)...)
			if err != nil {
				return "", err
			}
			page, _ := reply.([]any)
			if len(page) != 2 {
				return "", fmt.Errorf("%v is no page", reply)
			}
			cursor, _ = page[0].(string)
			list, _ := page[1].([]any)
			if found += len(list); len(list) > 0 {
				foundAt = pages + 1
			}
		}
		if found != 1 {
			return "", fmt.Errorf("%d messages were found, want one", found)
		}
		return fmt.Sprintf("one message found on page %d of %d", foundAt, pages), nil
	})
}

// killed makes all messages of the queue dead, with errors of two groups, and one of its own.
func (o *operatorBench) killed(ctx context.Context) error {
	n := 0
	for n < o.keys {
		reply, err := o.conn.Do("FILA.LEASE", manyQueue, "COUNT", "10000", "VISIBILITY", "3600000")
		if err != nil {
			return err
		}
		messages, _ := reply.([]any)
		if len(messages) == 0 {
			return fmt.Errorf("the queue is empty after %d messages", n)
		}
		nack := func(i int) []string {
			message, _ := messages[i].([]any)
			receipt, _ := message[0].(string)
			text := fmt.Sprintf("timeout after %d ms", n+i)
			switch {
			case n+i == o.keys/2:
				text = "needle"
			case (n+i)%2 == 1:
				text = fmt.Sprintf("disk full: %d bytes left", n+i)
			}
			return []string{"FILA.NACK", manyQueue, receipt, "DEAD", "ERROR", text}
		}
		if err := o.pipeline(ctx, len(messages), nack); err != nil {
			return err
		}
		n += len(messages)
	}
	return o.search(ctx, "search by error", deadQueue, "ERROR", "needle")
}

// redriven sends one group of errors back at a rate, stops it, and goes on.
func (o *operatorBench) redriven(ctx context.Context) error {
	rate := o.keys / 40 // a quarter of the group until it is stopped
	group := []string{"FILA.REDRIVE", deadQueue, "ERROR", "timeout after # ms", "RATE", strconv.Itoa(rate)}
	return o.measured(ctx, "redrive of one group", func(ctx context.Context) (string, error) {
		if _, err := o.conn.Do(group...); err != nil {
			return "", err
		}
		moved, seen := int64(0), 0
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			now, err := o.moved()
			if err != nil {
				return "", err
			}
			if now > moved {
				moved, seen = now, seen+1
			}
		}
		reply, err := o.conn.Do("FILA.REDRIVE", deadQueue, "STOP")
		if err != nil {
			return "", err
		}
		stopped, _ := reply.(int64)
		group[len(group)-1] = "1000000"
		if _, err := o.conn.Do(group...); err != nil {
			return "", err
		}
		rest, err := o.settledMoves(ctx)
		if err != nil {
			return "", err
		}
		want := int64(o.keys+1) / 2
		if o.keys/2%2 == 0 {
			want-- // the needle
		}
		if stopped+rest != want {
			return "", fmt.Errorf("%d and %d messages went back, want %d", stopped, rest, want)
		}
		return fmt.Sprintf("%d moved at %d/s until it was stopped, seen to grow %d times; then %d, %d of others untouched", stopped, rate, seen, rest, int64(o.keys)-want), nil
	})
}

// moved returns how many messages the redrive has moved.
func (o *operatorBench) moved() (int64, error) {
	moved, _, err := o.progress()
	return moved, err
}

// settledMoves waits for the end of the redrive.
func (o *operatorBench) settledMoves(ctx context.Context) (int64, error) {
	for {
		moved, running, err := o.progress()
		if err != nil || !running {
			return moved, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// progress returns what FILA.FIGURES and FILA.STATS say of the redrive.
func (o *operatorBench) progress() (moved int64, running bool, err error) {
	reply, err := o.conn.Do("FILA.STATS", deadQueue)
	fields, _ := reply.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		switch fields[i] {
		case "redrive_moved":
			moved, _ = fields[i+1].(int64)
		case "redrive_running":
			running = fields[i+1] == int64(1)
		}
	}
	return moved, running, err
}
