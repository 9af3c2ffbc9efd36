package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/history"
)

// subject is a message whose result a client may ask for.
type subject struct{ queue, id string }

const (
	subjects = 64 // that wait for a client that asks
	openMax  = 32 // that a client asks for again
	blockMax = 2500
)

// offer puts a message into a channel, in the place of the oldest one if it is full.
func offer(all chan subject, s subject) {
	for {
		select {
		case all <- s:
			return
		default:
		}
		select {
		case <-all:
		default:
		}
	}
}

// ask asks for results until ctx is done, and then for those that had no final answer.
func (c *client) ask(ctx context.Context) {
	defer c.redis.Close()
	var open []subject // asked for, and not ended or not answered
	for ctx.Err() == nil {
		s, again := c.subject(open)
		if s.id == "" {
			pause(5 * time.Millisecond)
			continue
		}
		block := time.Duration(0)
		if !c.one(4) {
			block = time.Duration(1+c.chance.IntN(1+c.chance.IntN(blockMax))) * time.Millisecond
		}
		final, answered := c.result(s, block)
		switch {
		case final && again:
			open = slices.DeleteFunc(open, func(o subject) bool { return o == s })
		case !final && !again:
			open = append(open, s)
		}
		if !answered {
			pause(5 * time.Millisecond)
		}
		pause(time.Millisecond)
	}
	for _, s := range open {
		if !c.settle(s) {
			return // nor will the others be answered, each after its own patience
		}
	}
}

// settle asks for the result of a message after everything was acked, until it is answered, and
// reports whether it was.
func (c *client) settle(s subject) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); pause(20 * time.Millisecond) {
		if _, answered := c.result(s, 0); answered {
			return true
		}
	}
	c.unexpected("no answer to FILA.RESULT, although the broker serves")
	return false
}

// subject chooses a message: one whose lease ends, a new one, or one that was asked for before.
func (c *client) subject(open []subject) (s subject, again bool) {
	if n := len(open); n > 0 && (n >= openMax || c.one(4)) {
		return open[c.chance.IntN(n)], true
	}
	from := c.ending
	if c.one(4) {
		from = c.fresh
	}
	select {
	case s = <-from:
	default:
	}
	return s, slices.Contains(open, s)
}

// result asks for the result of a message. final says that the message has ended, answered that
// there was an answer at all.
func (c *client) result(s subject, block time.Duration) (final, answered bool) {
	args := []any{"FILA.RESULT", s.queue, s.id}
	if block > 0 {
		args = append(args, "BLOCK", block.Milliseconds())
	}
	a := history.Ask{Queue: s.queue, ID: s.id, Block: block}
	a.Call = c.now()
	reply, err := c.redis.Do(context.Background(), args...).Result()
	a.Return = c.now()
	if errors.Is(err, redis.Nil) {
		reply, err = nil, nil
	}
	var sent bool
	if a.Outcome, sent = c.outcome(err); !sent {
		return false, false
	}
	if err == nil && reply != nil {
		if err := readResult(&a, reply); err != nil {
			c.unexpected(err.Error())
		}
	}
	c.Asks = append(c.Asks, a)
	return a.Outcome == history.Done && a.Status != history.IsPending, a.Outcome == history.Done
}

// readResult reads the answer.
func readResult(a *history.Ask, reply any) error {
	a.Status, _ = field(reply, "status").(string)
	value, valued := field(reply, "value").(string)
	at, _ := field(reply, "at").(int64)
	reason, _ := field(reply, "error").(string)
	ended := a.Status == history.IsDone || a.Status == history.IsDead
	if !ended && a.Status != history.IsPending || ended != (at > 0) || valued && a.Status != history.IsDone || (a.Status == history.IsDead) != (reason != "") {
		return fmt.Errorf("unexpected reply to FILA.RESULT: %.200v", reply)
	}
	if !valued {
		return nil
	}
	tag, err := tagOf(value)
	if err != nil {
		return fmt.Errorf("the result of %s: %w", a.ID, err)
	}
	id, by, _ := strings.Cut(tag, ":")
	if a.By, err = strconv.ParseUint(by, 10, 64); err != nil || id != a.ID {
		return fmt.Errorf("the result of %s is that of %s", a.ID, tag)
	}
	return nil
}
