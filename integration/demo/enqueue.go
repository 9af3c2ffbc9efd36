package main

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// enqueue stores each file as a message with its package as fairness key. A kill may leave the last
// enqueues of a pipeline without a reply: only those are sent again, and those that had been stored
// are then stored twice. For each pipeline, said is called with the numbers of answered and of
// repeated enqueues.
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

// pipeline sends the enqueues together and returns the files whose enqueue was not answered.
func pipeline(ctx context.Context, c *redis.Client, dir string, files []string) (unanswered []string, err error) {
	p := c.Pipeline()
	replies := make([]*redis.Cmd, len(files))
	for i, path := range files {
		replies[i] = p.Do(ctx, "FILA.ENQUEUE", queue, path, "KEY", pkg(dir, path))
	}
	_, whole := p.Exec(ctx) // the error of the first failed command
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
