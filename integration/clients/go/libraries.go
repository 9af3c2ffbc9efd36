package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/mediocregopher/radix/v4"
	"github.com/mediocregopher/radix/v4/resp/resp3"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

type goRedis struct{ client redis.UniversalClient }

func newGoRedis(addr string, protocol int) (library, error) {
	// With several nodes commands may block for as long as the tests let them.
	const blocks = 15 * time.Second
	switch nodes := strings.Split(os.Getenv("FILA_NODES"), ","); os.Getenv("FILA_MODE") {
	case "cluster":
		// After the loss of a node it asks for the new leader at intervals only, of a minute if nothing is said.
		return &goRedis{redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: nodes, Protocol: protocol, ReadTimeout: blocks, ClusterStateReloadInterval: time.Second,
		})}, nil
	case "sentinel":
		return &goRedis{redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "fila", SentinelAddrs: nodes, Protocol: protocol, ReadTimeout: blocks})}, nil
	}
	// Without MaxRetries -1 a command is sent again when its connection breaks.
	return &goRedis{redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, MaxRetries: -1})}, nil
}

func (g *goRedis) call(limit time.Duration, _ bool, args []string) (any, error) {
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = a
	}
	client := g.client
	if one, is := client.(*redis.Client); is {
		client = one.WithTimeout(limit) // the read timeout, five seconds if nothing is said, holds for each command
	}
	v, err := client.Do(context.Background(), words...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if refused := redis.Error(nil); errors.As(err, &refused) {
		return nil, replyError(refused.Error())
	}
	return v, err
}

type byRueidis struct{ client rueidis.Client }

func newRueidis(addr string, protocol int) (library, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, AlwaysRESP2: protocol == 2, DisableCache: protocol == 2,
	})
	return &byRueidis{client}, err
}

func (r *byRueidis) call(limit time.Duration, blocks bool, args []string) (any, error) {
	ctx := context.Background()
	if limit != forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	words := r.client.B().Arbitrary(args[0]).Args(args[1:]...)
	build := words.Build
	if blocks { // a connection of its own, or it holds back all others
		build = words.Blocking
	}
	v, err := r.client.Do(ctx, build()).ToAny()
	if refused, is := rueidis.IsRedisErr(err); is && refused.IsNil() {
		return nil, nil
	} else if is {
		return nil, replyError(refused.Error())
	}
	return v, err
}

type byRedigo struct{ pool *redigo.Pool }

func newRedigo(addr string, _ int) (library, error) {
	return &byRedigo{&redigo.Pool{MaxIdle: 2, Dial: func() (redigo.Conn, error) { return redigo.Dial("tcp", addr) }}}, nil
}

func (r *byRedigo) call(limit time.Duration, _ bool, args []string) (any, error) {
	conn := r.pool.Get()
	defer conn.Close() // a connection with an error does not go back to the pool
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = a
	}
	v, err := redigo.DoWithTimeout(conn, max(limit, 0), args[0], words[1:]...)
	if refused := redigo.Error(""); errors.As(err, &refused) {
		return nil, replyError(refused)
	}
	return v, err
}

type byRadix struct {
	addr   string
	client radix.Client
}

func newRadix(addr string, _ int) (library, error) { return &byRadix{addr: addr}, nil }

func (r *byRadix) call(limit time.Duration, blocks bool, args []string) (any, error) {
	ctx := context.Background()
	if limit != forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	client, err := r.choose(ctx, blocks)
	if err != nil {
		return nil, err
	}
	if blocks {
		defer client.Close()
	}
	var v any
	err = client.Do(ctx, radix.Cmd(&v, args[0], args[1:]...))
	if refused := (resp3.SimpleError{}); errors.As(err, &refused) {
		return nil, replyError(refused.S)
	}
	return v, err
}

// choose returns the pool, whose commands share a connection, or a connection of
// its own for what blocks. A pool of several prefers those that have answered, and so keeps one
// that a restart of the broker has broken for any later command.
func (r *byRadix) choose(ctx context.Context, blocks bool) (radix.Client, error) {
	if blocks {
		return radix.Dial(ctx, "tcp", r.addr)
	}
	if r.client == nil {
		pool, err := radix.PoolConfig{Size: 1}.New(ctx, "tcp", r.addr)
		if err != nil {
			return nil, err
		}
		r.client = pool
	}
	return r.client, nil
}
