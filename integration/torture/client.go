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

// clock is the monotonic clock of a run. It converts the broker's times.
type clock struct{ start time.Time }

func (c clock) now() time.Duration { return time.Since(c.start) }

// of converts Unix milliseconds. The broker runs on the same machine and so uses the same clock.
func (c clock) of(ms int64) time.Duration { return time.UnixMilli(ms).Sub(c.start.Round(0)) }

// shared is the state shared by all clients of a run.
type shared struct {
	clock
	addrs    []string // clients are spread over them
	options  options
	backlog  atomic.Int64 // answered enqueues minus answered acks
	progress atomic.Int64 // deliveries
	ordered  atomic.Int64 // deliveries of the ordered queue
	answers  atomic.Int64 // calls that were executed
	draining atomic.Bool  // consumers ack everything they lease
	named    sync.Map     // ids in replies to enqueues with DEDUP
	fresh    chan subject // messages that were enqueued moments ago
	ending   chan subject // messages whose leases are about to end

	mu      sync.Mutex
	strange map[string]int // replies outside the contract, by text
}

// unexpected records a reply outside the contract.
func (c *shared) unexpected(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strange[what]++
}

// client is one connection and its record.
type client struct {
	*shared
	history.Log
	redis     *redis.Client
	chance    *rand.Rand
	number    int
	followers int        // number of messages enqueued in transactions
	published int        // number of publishes
	publishes []*publish // without an answer
}

func (c *shared) client(number int) *client {
	return &client{
		shared: c,
		number: number,
		chance: rand.New(rand.NewPCG(c.options.seed, uint64(number)+1)),
		redis: redis.NewClient(&redis.Options{
			Addr: c.addrs[number%len(c.addrs)], Protocol: 2 + number%2, MaxRetries: -1, PoolSize: 1, DialerRetries: 1, DialTimeout: time.Second, ReadTimeout: 10 * time.Second,
			ContextTimeoutEnabled: true,
		}),
	}
}

// one returns true with probability 1/n.
func (c *client) one(n int) bool { return c.chance.IntN(n) == 0 }

// pause waits for d: the broker is down, or the backlog is too large.
func pause(d time.Duration) { <-time.After(d) }

// outcome translates an error. sent is false if the command was not sent.
func (c *shared) outcome(err error) (o history.Outcome, sent bool) {
	var dial *net.OpError
	var refusal redis.Error
	switch {
	case err == nil:
		c.answers.Add(1)
		return history.Done, true
	case errors.As(err, &dial) && dial.Op == "dial":
		return history.Unknown, false
	case errors.Is(err, redis.ErrPoolTimeout):
		return history.Unknown, false
	case errors.As(err, &refusal):
		switch code, _, _ := strings.Cut(err.Error(), " "); code {
		case "LEASELOST":
			return history.Refused, true
		case "MISCONF":
			return history.Unknown, true
		case "LOADING", "MAXDEPTH": // nothing has happened
			return history.Refused, true
		}
		c.unexpected(err.Error())
		return history.Refused, true
	}
	return history.Unknown, true
}

// deliveries parses the reply to a lease.
func (c *client) deliveries(reply any) ([]history.Delivery, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("unexpected reply to a lease: %T", reply)
	}
	all := make([]history.Delivery, 0, len(list))
	for _, m := range list {
		f, ok := m.([]any)
		if !ok || len(f) < 9 {
			return nil, fmt.Errorf("unexpected message in a reply: %v", m)
		}
		receipt, _ := f[0].(string)
		payload, _ := f[1].(string)
		queue, _ := f[8].(string)
		key, _ := f[3].(string)
		deliveries, _ := f[5].(int64)
		until, _ := f[7].(int64)
		id, fence, _ := strings.Cut(receipt, ":")
		number, err := strconv.ParseUint(fence, 10, 64)
		if err != nil || until == 0 {
			return nil, fmt.Errorf("unexpected message in a reply: %v", f)
		}
		tag, err := tagOf(payload)
		if err != nil {
			return nil, err
		}
		tag = tagIn(tag, queue)
		all = append(all, history.Delivery{Tag: tag, ID: id, Fence: number, Key: key, Deliveries: deliveries, Until: c.of(until)})
	}
	return all, nil
}

// payload returns a body of the given size that is unique to the tag.
func payload(tag string, size int) string {
	return tag + "|" + strings.Repeat(tag+".", size/(len(tag)+1)+1)
}

// tagOf verifies a body and returns its tag.
func tagOf(body string) (string, error) {
	tag, rest, _ := strings.Cut(body, "|")
	if tag == "" || strings.ReplaceAll(rest, tag+".", "") != "" {
		return "", fmt.Errorf("the payload differs from the one enqueued: %.100q", body)
	}
	return tag, nil
}
