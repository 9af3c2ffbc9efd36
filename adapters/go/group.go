package fila

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Group waits for messages of any queues: when all of them have ended, the broker enqueues its message. Messages join with
// [Message.Group]. Client and Name are required. Its methods may be called from several goroutines.
type Group struct {
	Client redis.UniversalClient
	Name   string
}

// GroupOptions say when a group ends.
type GroupOptions struct {
	// WhenDone has it wait also for members that are dead, until they are redriven or removed.
	WhenDone bool
	// Expire is after how long it is cancelled. 0: never.
	Expire time.Duration
}

// GroupState is a group as FILA.GROUP GET shows it.
type GroupState struct {
	State                                   string // open, sealed, done or cancelled
	Members, Pending, Done, Dead, Cancelled int64
	Message                                 string // the id of the message that it has enqueued at its end, or ""
	Error                                   string
}

// Ended reports whether the group is done or cancelled.
func (s GroupState) Ended() bool { return s.State == "done" || s.State == "cancelled" }

// Open opens the group, with the message that is enqueued at its end, which has neither Dedup nor Unique. It reports false if there
// is a group of the name, which stays as it is. A queue that does not exist is created, with its Settings.
func (g *Group) Open(ctx context.Context, q *Queue, m Message, o GroupOptions) (opened bool, err error) {
	args := append([]any{"FILA.GROUP", "OPEN", g.Name}, q.enqueuing(ctx, m)[1:]...)
	if o.WhenDone {
		args = append(args, "WHEN", "DONE")
	}
	if o.Expire > 0 {
		args = append(args, "EXPIRE", o.Expire.Milliseconds())
	}
	n, err := g.Client.Do(ctx, args...).Int()
	if refused(err, "NOQUEUE") {
		if err := q.Create(ctx); err != nil {
			return false, err
		}
		n, err = g.Client.Do(ctx, args...).Int()
	}
	if err != nil {
		return false, fmt.Errorf("open group %q: %w", g.Name, err)
	}
	return n == 1, nil
}

// Seal has the group take no more members, and returns how many are pending.
func (g *Group) Seal(ctx context.Context) (pending int64, err error) {
	pending, err = g.Client.Do(ctx, "FILA.GROUP", "SEAL", g.Name).Int64()
	if err != nil {
		return 0, fmt.Errorf("seal group %q: %w", g.Name, err)
	}
	return pending, nil
}

// Cancel cancels the message of the group and the members that are not leased. It reports false if the group has ended.
func (g *Group) Cancel(ctx context.Context) (cancelled bool, err error) {
	n, err := g.Client.Do(ctx, "FILA.GROUP", "CANCEL", g.Name).Int()
	if err != nil {
		return false, fmt.Errorf("cancel group %q: %w", g.Name, err)
	}
	return n == 1, nil
}

// Get returns the state of the group, or [ErrUnknown].
func (g *Group) Get(ctx context.Context) (GroupState, error) {
	reply, err := g.Client.Do(ctx, "FILA.GROUP", "GET", g.Name).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return GroupState{}, ErrUnknown
	case err != nil:
		return GroupState{}, fmt.Errorf("group %q: %w", g.Name, err)
	}
	fields := fieldsOf(reply)
	number := func(name string) int64 { n, _ := fields[name].(int64); return n }
	return GroupState{
		State: text(fields["state"]), Members: number("members"), Pending: number("pending"), Done: number("done"), Dead: number("dead"),
		Cancelled: number("cancelled"), Message: text(fields["message"]), Error: text(fields["error"]),
	}, nil
}

// Wait waits until the group has ended. If ctx ends before, it returns the last state that it has seen, with the error of ctx.
func (g *Group) Wait(ctx context.Context) (GroupState, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, retryAfter) { // no command waits for a group
		state, err := g.Get(context.WithoutCancel(ctx))
		if err != nil || state.Ended() {
			return state, err
		}
		select {
		case <-ctx.Done():
			return state, ctx.Err()
		case <-time.After(pause):
		}
	}
}
