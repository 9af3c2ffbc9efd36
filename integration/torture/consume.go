package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/history"
)

// visibility is short so that messages leased before a crash are soon delivered again.
const visibility = 1200 * time.Millisecond

// late is a receipt to be used after the end of its lease.
type late struct {
	queue string
	d     history.Delivery
	at    time.Duration
}

// consume leases messages and ends leases in every possible way, until ctx is done.
func (c *client) consume(ctx context.Context, number int) {
	defer c.redis.Close()
	leaves := number%4 == 3
	var tardy []late
	for ctx.Err() == nil {
		var due []late
		for len(tardy) > 0 && tardy[0].at < c.now() {
			due, tardy = append(due, tardy[0]), tardy[1:]
		}
		for _, l := range due {
			c.end(l.queue, []history.End{{Kind: history.Ack, ID: l.d.ID, Fence: l.d.Fence}}, nil)
		}
		queue := steady
		switch {
		case c.one(15):
			queue = steady + ".dlq"
		case c.one(14):
			queue = fickle + ".dlq"
		case leaves || c.one(6):
			queue = fickle
		}
		got, ok := c.lease(queue, leaves && queue == fickle && c.one(3))
		if !ok {
			pause(3 * time.Millisecond)
		}
		tardy = append(tardy, c.work(queue, got)...)
	}
}

// lease requests messages. A client that leaves disconnects in the middle of the call.
func (c *client) lease(queue string, leaves bool) (got []history.Delivery, ok bool) {
	args := []any{"FILA.LEASE", queue, "COUNT", 1 + c.chance.IntN(24), "VISIBILITY", visibility.Milliseconds()}
	if !c.one(4) {
		args = append(args, "BLOCK", 1+c.chance.IntN(80))
	}
	ctx := context.Background()
	if leaves {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(1+c.chance.IntN(30))*time.Millisecond)
		defer cancel()
	}
	l := history.Lease{Queue: queue, Visibility: visibility}
	l.Call = c.now()
	reply, err := c.redis.Do(ctx, args...).Result()
	l.Return = c.now()
	var sent bool
	if l.Outcome, sent = c.outcome(err); !sent {
		return nil, false
	}
	if err == nil {
		if l.Got, err = c.deliveries(reply); err != nil {
			c.unexpected(err.Error())
		}
	}
	if len(l.Got) > 0 {
		c.Leases = append(c.Leases, l)
		c.progress.Add(int64(len(l.Got)))
	}
	return l.Got, err == nil || leaves
}

// work ends the lease of each message or leaves it open, and returns the receipts to use late.
func (c *client) work(queue string, got []history.Delivery) (tardy []late) {
	var acks []history.End
	for _, d := range got {
		e := history.End{Kind: history.Ack, ID: d.ID, Fence: d.Fence}
		how := c.chance.IntN(100)
		if c.draining.Load() {
			how = 99
		}
		switch {
		case how < 2: // dropped: the lease expires
		case how < 5: // acked after the lease has expired, when another client may hold the message
			tardy = append(tardy, late{queue, d, d.Until + time.Duration(c.chance.IntN(300))*time.Millisecond})
		case how < 10:
			e.Kind = history.Nack
			c.end(queue, []history.End{e}, c.nack())
		case how < 13:
			e.Kind = history.Release
			c.end(queue, []history.End{e}, nil)
			if c.one(2) { // the receipt of a released lease is invalid
				e.Kind = history.Ack
				c.end(queue, []history.End{e}, nil)
			}
		case how < 16:
			e.Kind = history.Extend
			c.end(queue, []history.End{e}, []any{200 + c.chance.IntN(1500)})
			if !c.one(4) {
				e.Kind = history.Ack
				c.end(queue, []history.End{e}, nil)
			}
		case how < 19: // acked in a transaction that enqueues a follow-up
			c.exec(queue, e)
		default:
			acks = append(acks, e)
			if c.one(40) {
				acks = append(acks, e) // sent twice: the second ack must not be honoured
			}
		}
	}
	c.end(queue, acks, nil)
	return tardy
}

// nack returns the arguments of a retry or of a final failure.
func (c *client) nack() []any {
	switch c.chance.IntN(5) {
	case 0:
		return []any{"DEAD"}
	case 1:
		return nil
	default:
		return []any{"DELAY", c.chance.IntN(700), "ERROR", "as chance has it"}
	}
}

// end sends the commands in one pipeline and records the outcomes.
func (c *client) end(queue string, ends []history.End, more []any) {
	if len(ends) == 0 {
		return
	}
	p := c.redis.Pipeline()
	for _, e := range ends {
		name := map[history.EndKind]string{history.Ack: "FILA.ACK", history.Nack: "FILA.NACK", history.Release: "FILA.RELEASE", history.Extend: "FILA.EXTEND"}[e.Kind]
		p.Do(context.Background(), append([]any{name, queue, fmt.Sprintf("%s:%d", e.ID, e.Fence)}, more...)...)
	}
	span := history.Span{Call: c.now()}
	cmds, _ := p.Exec(context.Background()) // each command has its own error
	span.Return = c.now()
	c.noteEnds(span, ends, cmds)
}

func (c *client) noteEnds(span history.Span, ends []history.End, cmds []redis.Cmder) {
	for i := range ends {
		cmd, ok := cmds[i].(*redis.Cmd)
		if !ok {
			continue
		}
		ends[i].Span = span
		if c.note(&ends[i], cmd) {
			c.Ends = append(c.Ends, ends[i])
		}
	}
}

// exec acks a message and enqueues another one in one transaction.
func (c *client) exec(queue string, ack history.End) {
	c.followers++
	ack.With = fmt.Sprintf("%d+%d", c.number, c.followers)
	e := history.Enqueue{Tag: ack.With, Queue: steady, Key: "followers", Priority: 4}
	p := c.redis.TxPipeline()
	p.Do(context.Background(), "FILA.ACK", queue, fmt.Sprintf("%s:%d", ack.ID, ack.Fence))
	p.Do(context.Background(), "FILA.ENQUEUE", e.Queue, payload(e.Tag, 100), "KEY", e.Key)
	span := history.Span{Call: c.now()}
	cmds, _ := p.Exec(context.Background())
	span.Return = c.now()
	c.noteEnds(span, []history.End{ack}, cmds[:1])
	c.noteEnqueues(span, []history.Enqueue{e}, cmds[1:])
}

// note records the outcome of a reply. It returns false if the command was not sent.
func (c *client) note(e *history.End, cmd *redis.Cmd) bool {
	reply, err := cmd.Result()
	var sent bool
	if e.Outcome, sent = c.outcome(err); !sent {
		return false
	}
	if err != nil {
		return true
	}
	switch e.Kind {
	case history.Ack, history.Release:
		if n, ok := reply.(int64); !ok || n != 1 {
			e.Outcome = history.Refused
		} else if e.Kind == history.Ack {
			c.backlog.Add(-1)
		}
	case history.Nack:
		if at, ok := field(reply, "ready_at").(int64); ok {
			e.ReadyAt = c.of(at)
		}
	case history.Extend:
		if at, ok := reply.(int64); ok {
			e.Until = c.of(at)
		}
	}
	return true
}

// field returns a field of a map, which is an array in RESP2.
func field(reply any, name string) any {
	switch m := reply.(type) {
	case map[any]any:
		return m[name]
	case []any:
		for i := 0; i+1 < len(m); i += 2 {
			if m[i] == name {
				return m[i+1]
			}
		}
	}
	return nil
}
