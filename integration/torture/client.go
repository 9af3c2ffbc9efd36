package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/history"
)

// clock is the one clock of a run: it never goes back, and it knows what the broker
// means by a time.
type clock struct{ start time.Time }

func (c clock) now() time.Duration { return time.Since(c.start) }

// of converts Unix milliseconds. The broker runs on this machine: its clock is ours.
func (c clock) of(ms int64) time.Duration { return time.UnixMilli(ms).Sub(c.start.Round(0)) }

// crowd is what all clients of a run share.
type crowd struct {
	clock
	addr     string
	options  options
	backlog  atomic.Int64 // enqueues that were answered less acks that were
	progress atomic.Int64 // deliveries
	draining atomic.Bool  // all that is leased is acked
	named    sync.Map     // ids that enqueues with DEDUP were answered with

	mu      sync.Mutex
	strange map[string]int // answers that no client should get
}

// wonder takes note of an answer that the contract does not have.
func (c *crowd) wonder(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strange[what]++
}

// client is one connection and what it notes.
type client struct {
	*crowd
	history.Log
	redis     *redis.Client
	chance    *rand.Rand
	number    int
	followers int // what it has enqueued in transactions
}

func (c *crowd) client(number int) *client {
	return &client{
		crowd:  c,
		number: number,
		chance: rand.New(rand.NewPCG(c.options.seed, uint64(number)+1)),
		redis: redis.NewClient(&redis.Options{
			Addr: c.addr, Protocol: 2 + number%2, MaxRetries: -1, PoolSize: 1, DialerRetries: 1, DialTimeout: time.Second, ReadTimeout: 10 * time.Second,
			ContextTimeoutEnabled: true,
		}),
	}
}

// one in n.
func (c *client) one(n int) bool { return c.chance.IntN(n) == 0 }

// pause waits for a moment: the broker is away, or there is too much to do.
func pause(d time.Duration) { <-time.After(d) }

// outcome is what an error means. sent is false if the call never left.
func (c *crowd) outcome(err error) (o history.Outcome, sent bool) {
	var dial *net.OpError
	var refusal redis.Error
	switch {
	case err == nil:
		return history.Done, true
	case errors.As(err, &dial) && dial.Op == "dial":
		return history.Unknown, false
	case errors.Is(err, redis.ErrPoolTimeout):
		return history.Unknown, false
	case errors.As(err, &refusal):
		switch code, _, _ := strings.Cut(err.Error(), " "); code {
		case "LEASELOST":
			return history.Refused, true
		case "MISCONF", "LOADING":
			return history.Unknown, true
		}
		c.wonder(err.Error())
		return history.Refused, true
	}
	return history.Unknown, true
}

// deliveries takes the answer to a lease apart.
func (c *client) deliveries(reply any) ([]history.Delivery, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("a lease was answered with %T", reply)
	}
	all := make([]history.Delivery, 0, len(list))
	for _, m := range list {
		f, ok := m.([]any)
		if !ok || len(f) < 9 {
			return nil, fmt.Errorf("a message is %v", m)
		}
		receipt, _ := f[0].(string)
		payload, _ := f[1].(string)
		key, _ := f[3].(string)
		deliveries, _ := f[5].(int64)
		until, _ := f[7].(int64)
		id, fence, _ := strings.Cut(receipt, ":")
		number, err := strconv.ParseUint(fence, 10, 64)
		if err != nil || until == 0 {
			return nil, fmt.Errorf("a message is %v", f)
		}
		tag, err := tagOf(payload)
		if err != nil {
			return nil, err
		}
		all = append(all, history.Delivery{Tag: tag, ID: id, Fence: number, Key: key, Deliveries: deliveries, Until: c.of(until)})
	}
	return all, nil
}

// payload makes a body of a size that only this tag has.
func payload(tag string, size int) string {
	return tag + "|" + strings.Repeat(tag+".", size/(len(tag)+1)+1)
}

// tagOf checks a body and returns its tag.
func tagOf(body string) (string, error) {
	tag, rest, _ := strings.Cut(body, "|")
	if tag == "" || strings.ReplaceAll(rest, tag+".", "") != "" {
		return "", fmt.Errorf("a payload is not what was enqueued: %.100q", body)
	}
	return tag, nil
}
