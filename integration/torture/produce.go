package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/history"
)

// The queues. Clients of the second disconnect in the middle of calls, the third is ordered, and
// the last holds few messages.
const (
	steady = "steady"
	fickle = "fickle"
	serial = "serial"
	tight  = "tight"
)

const (
	keys       = 20
	serialKeys = 400 // of the ordered queue: a key waits while a lease of it expires
	tightDepth = 60
	backlogMax = 4000 // more would make the final drain long
	delayMax   = 1500 // ms
	names      = 60   // deduplication ids, which are reused
	largeMax   = 600_000
)

// The settings of the queues.
const (
	fickleTTL   = 4 * time.Second
	dedupWindow = 3 * time.Second
)

// produce enqueues messages, alone or in pipelines, until ctx is done. Each tag is used once.
func (c *client) produce(ctx context.Context, number int) {
	defer c.redis.Close()
	for n := 0; ctx.Err() == nil; {
		if c.backlog.Load() > backlogMax {
			pause(2 * time.Millisecond)
			continue
		}
		if len(c.publishes) > 0 || c.one(4) {
			c.publish()
		}
		p := c.redis.Pipeline()
		count := 1 + c.chance.IntN(16)
		batch := make([]history.Enqueue, count)
		for i := range batch {
			args := c.message(&batch[i], fmt.Sprintf("%d-%d", number, n))
			n++
			p.Do(ctx, args...)
		}
		if !c.enqueue(p, batch) {
			pause(3 * time.Millisecond)
		}
		pause(time.Duration(count*c.options.producers) * time.Second / time.Duration(c.options.rate))
	}
}

// message generates a message and returns the command that enqueues it.
func (c *client) message(e *history.Enqueue, tag string) []any {
	size := c.chance.IntN(600)
	if c.one(c.options.large) {
		size = c.chance.IntN(largeMax)
	}
	key := func(n int) string { return "key-" + strconv.Itoa(n%keys) }
	e.Tag, e.Queue, e.Key, e.Priority = tag, steady, key(c.chance.IntN(keys)), 4
	if c.chance.IntN(100) < c.options.ordered {
		e.Queue, e.Key = serial, serialKey(c.chance.IntN(serialKeys))
		args := []any{"FILA.ENQUEUE", e.Queue, payload(tag, size), "KEY", e.Key}
		if c.one(40) {
			ms := 1 + c.chance.IntN(1+c.chance.IntN(4000))
			e.TTL = time.Duration(ms) * time.Millisecond
			args = append(args, "TTL", ms)
		}
		return args
	}
	if c.one(10) {
		n := c.chance.IntN(names)
		e.Key, e.Dedup = key(n), "name-"+strconv.Itoa(n)
		return []any{"FILA.ENQUEUE", e.Queue, payload(tag, size), "KEY", e.Key, "DEDUP", e.Dedup}
	}
	if c.one(5) {
		e.Queue, e.TTL = fickle, fickleTTL
	}
	args := []any{"FILA.ENQUEUE", e.Queue, payload(tag, size), "KEY", e.Key}
	if c.one(10) { // sometimes too short for any delivery
		ms := 1 + c.chance.IntN(1+c.chance.IntN(2000))
		e.TTL = time.Duration(ms) * time.Millisecond
		return append(args, "TTL", ms)
	}
	if c.one(8) {
		e.Priority = c.chance.IntN(10)
		args = append(args, "PRIORITY", e.Priority)
	}
	if c.one(8) {
		ms := 1 + c.chance.IntN(delayMax)
		e.Delay = time.Duration(ms) * time.Millisecond
		if c.one(2) {
			at := time.Now().UnixMilli() + int64(ms)
			e.Delay = c.of(at) // the call, from which delays count, has not been sent yet
			return append(args, "AT", at)
		}
		args = append(args, "DELAY", ms)
	}
	return args
}

func serialKey(n int) string { return "serial-" + strconv.Itoa(n) }

// enqueue sends a pipeline and records the outcomes. It reports whether all commands succeeded.
func (c *client) enqueue(p redis.Pipeliner, batch []history.Enqueue) bool {
	at := c.now()
	cmds, failed := p.Exec(context.Background())
	span := history.Span{Call: at, Return: c.now()}
	for i := range batch {
		if isAt(cmds[i]) {
			batch[i].Delay = max(batch[i].Delay-at, 1) // it was an absolute time; a positive delay marks the message as unordered
		}
	}
	c.noteEnqueues(span, batch, cmds)
	return failed == nil
}

func (c *client) noteEnqueues(span history.Span, batch []history.Enqueue, cmds []redis.Cmder) {
	for i := range batch {
		e := &batch[i]
		e.Span = span
		cmd, ok := cmds[i].(*redis.Cmd)
		if !ok {
			continue
		}
		id, err := cmd.Text()
		var sent bool
		if e.Outcome, sent = c.outcome(err); !sent {
			continue
		}
		if e.Outcome == history.Done {
			e.ID = id
			offer(c.fresh, subject{e.Queue, id})
			if e.Dedup == "" || c.first(id) {
				c.backlog.Add(1)
			}
		}
		c.Enqueues = append(c.Enqueues, *e)
	}
}

// first reports whether no earlier reply contained the id.
func (c *shared) first(id string) bool {
	_, known := c.named.LoadOrStore(id, true)
	return !known
}

// isAt reports whether a command has an absolute time instead of a delay.
func isAt(cmd redis.Cmder) bool {
	args := cmd.Args()
	return len(args) > 2 && args[len(args)-2] == "AT"
}
