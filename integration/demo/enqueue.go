package main

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// enqueue stores each file as a message of its package. A pipeline that a kill
// cuts short leaves enqueues without an answer: those, and only those, are sent
// again, and those among them that had been stored are then stored twice. For
// each pipeline it says how many were answered and how many have to be sent again.
func enqueue(ctx context.Context, c *redis.Client, dir string, files []string, said func(answer)) error {
	const depth = 16
	for len(files) > 0 && ctx.Err() == nil {
		n := min(depth, len(files))
		unanswered, err := pipeline(ctx, c, dir, files[:n])
		if err != nil {
			return err
		}
		said(answer{enqueued: n - len(unanswered), again: len(unanswered)})
		files = append(unanswered, files[n:]...)
	}
	return nil
}

// pipeline sends the enqueues in one packet and returns the files whose enqueue
// was not answered.
func pipeline(ctx context.Context, c *redis.Client, dir string, files []string) (unanswered []string, err error) {
	p := c.Pipeline()
	replies := make([]*redis.Cmd, len(files))
	for i, path := range files {
		replies[i] = p.Do(ctx, "FILA.ENQUEUE", queue, path, "KEY", pkg(dir, path))
	}
	_, whole := p.Exec(ctx) // is the error of the first reply that has one
	if whole == nil {
		return nil, nil
	}
	for i, r := range replies {
		if r.Err() == nil {
			continue
		}
		if answered := redis.Error(nil); errors.As(r.Err(), &answered) && !strings.HasPrefix(answered.Error(), "LOADING") {
			return nil, r.Err()
		}
		unanswered = append(unanswered, files[i])
	}
	return unanswered, pause(ctx, whole)
}
