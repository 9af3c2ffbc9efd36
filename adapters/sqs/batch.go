package sqs

import (
	"errors"

	"github.com/redis/go-redis/v9"
)

// replied is the reply of one of several commands that were sent together.
type replied struct {
	value any
	err   error
}

func (r replied) text() (string, error) {
	s, is := r.value.(string)
	if r.err == nil && !is {
		return "", errors.New("the broker has replied something else than a text")
	}
	return s, r.err
}

// together sends n commands in one write. One that cannot be made has its error in place of a reply.
func (c *call) together(n int, command func(i int) ([]any, error)) []replied {
	all := make([]replied, n)
	cmds, sent := make([]*redis.Cmd, n), make([]redis.Cmder, 0, n)
	for i := range n {
		args, err := command(i)
		if err != nil {
			all[i].err = err
			continue
		}
		cmds[i] = redis.NewCmd(c.ctx, args...)
		sent = append(sent, cmds[i])
	}
	if len(sent) > 0 {
		c.writes.do(sent...)
	}
	for i, cmd := range cmds {
		if cmd != nil {
			all[i].value, all[i].err = cmd.Result()
		}
	}
	return all
}

// change sends a command that changes a message.
func (c *call) change(args ...any) *redis.Cmd {
	cmd := redis.NewCmd(c.ctx, args...)
	c.writes.do(cmd)
	return cmd
}

// absent reports whether a reply was nil.
func absent(err error) bool { return errors.Is(err, redis.Nil) }
