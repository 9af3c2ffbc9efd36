package main

import (
	"context"
	"fmt"
	"strings"
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
		queue := c.choose(leaves)
		got, ok := c.lease(queue, leaves && queue == fickle && c.one(3))
		if !ok {
			pause(3 * time.Millisecond)
		}
		tardy = append(tardy, c.work(queue, got)...)
	}
}

// choose returns the queue of the next lease.
func (c *client) choose(leaves bool) string {
	switch {
	case c.one(15):
		return steady + ".dlq"
	case c.one(14):
		return fickle + ".dlq"
	case c.one(20):
		return serial + ".dlq"
	case c.one(30):
		return tight + ".dlq"
	case c.one(16):
		return tight
	case leaves || c.one(6):
		return fickle
	case c.chance.IntN(100) < c.options.ordered:
		return serial
	}
	return steady
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
		if queue == serial {
			c.ordered.Add(int64(len(l.Got)))
		}
	}
	return l.Got, err == nil || leaves
}

// work ends the lease of each message or leaves it open, and returns the receipts to use late.
func (c *client) work(queue string, got []history.Delivery) (tardy []late) {
	var acks []history.End
	home := !strings.HasSuffix(queue, ".dlq")
	for _, d := range got {
		e := history.End{Kind: history.Ack, ID: d.ID, Fence: d.Fence, Valued: home && c.one(2)}
		if home {
			offer(c.ending, subject{queue, d.ID})
		}
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
			more := c.nack()
			e.Dead = len(more) == 1
			c.end(queue, []history.End{e}, more)
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
		args := append([]any{name, queue, receipt(&e)}, more...)
		if e.Kind == history.Ack {
			args = append(args, c.value(&e)...)
		}
		p.Do(context.Background(), args...)
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

func receipt(e *history.End) string { return fmt.Sprintf("%s:%d", e.ID, e.Fence) }

// value returns the arguments for the result of an ack.
func (c *client) value(ack *history.End) []any {
	if !ack.Valued {
		return nil
	}
	return []any{"RESULT", payload(receipt(ack), c.chance.IntN(200))}
}

// exec acks a message and enqueues or publishes another one in one transaction.
func (c *client) exec(queue string, ack history.End) {
	p := c.redis.TxPipeline()
	p.Do(context.Background(), append([]any{"FILA.ACK", queue, receipt(&ack)}, c.value(&ack)...)...)
	var copies []history.Enqueue
	var args []any
	published := c.one(3)
	if published {
		u := c.newPublish()
		u.to, u.dedup = "none", false // none of these queues refuses
		args, copies = u.next()
	} else {
		c.followers++
		e := history.Enqueue{Tag: fmt.Sprintf("%d+%d", c.number, c.followers), Queue: steady, Key: "followers", Priority: 4}
		args, copies = []any{"FILA.ENQUEUE", e.Queue, payload(e.Tag, 100), "KEY", e.Key}, []history.Enqueue{e}
	}
	ack.With = copies[c.chance.IntN(len(copies))].Tag
	p.Do(context.Background(), args...)
	span := history.Span{Call: c.now()}
	cmds, _ := p.Exec(context.Background())
	span.Return = c.now()
	c.noteEnds(span, []history.End{ack}, cmds[:1])
	if cmd, ok := cmds[1].(*redis.Cmd); ok && published {
		c.notePublish(span, copies, cmd)
		return
	}
	c.noteEnqueues(span, copies, cmds[1:])
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
