package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// queue is where the files wait.
const queue = "docs"

// result is what a worker says of one message it was given, a JSON line on its
// standard output.
type result struct {
	Path  []byte `json:"path"` // in base64: not every path is UTF-8
	Sum   string `json:"sum,omitempty"`
	Error string `json:"error,omitempty"` // why there is no sum
}

// client connects to the broker. go-redis would send a command again when its
// reply is lost; here that is decided where it is known what it would do.
func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: 10 * time.Second})
}

// work leases, hashes and acks until its input ends, which it does when the
// parent wants it to, or is gone. The broker may go and come back meanwhile.
func work(ctx context.Context, addr, name string, input io.Reader, output io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input) // an error ends it as well
	}()
	c := client(addr)
	defer c.Close()
	for ctx.Err() == nil {
		if err := round(ctx, c, name, json.NewEncoder(output)); err != nil {
			return fmt.Errorf("worker %s: %w", name, err)
		}
	}
	return nil
}

// round is one lease and what follows from it.
func round(ctx context.Context, c *redis.Client, name string, output *json.Encoder) error {
	messages, err := c.Do(ctx, "FILA.LEASE", queue, "COUNT", 8, "BLOCK", 250, "CONSUMER", name).Slice()
	if err != nil {
		return pause(ctx, err)
	}
	ack := []any{"FILA.ACK", queue}
	for _, m := range messages {
		fields, ok := m.([]any)
		if !ok || len(fields) < 2 {
			return fmt.Errorf("a message that is no message: %v", m)
		}
		path := fmt.Sprint(fields[1])
		r := result{Path: []byte(path)}
		if r.Sum, err = sum(path); err != nil {
			r.Error = err.Error()
		}
		// First the result, then the ack: the other way round, a message whose worker
		// ends in between is gone without a trace.
		if err := output.Encode(r); err != nil {
			return err
		}
		ack = append(ack, fields[0])
	}
	// The receipts hold across a restart of the broker, so an ack that was not
	// answered is sent again, not the work done again.
	for len(messages) > 0 && ctx.Err() == nil {
		err := c.Do(ctx, ack...).Err()
		if err == nil {
			break
		}
		if err := pause(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

func sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// pause waits a moment when the broker is away or still recovering, which passes.
// It returns every other error.
func pause(ctx context.Context, err error) error {
	if answered := redis.Error(nil); errors.As(err, &answered) && !strings.HasPrefix(answered.Error(), "LOADING") {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
	return nil
}
