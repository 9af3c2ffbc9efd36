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

// queue is the queue of file names.
const queue = "docs"

// result is a worker's result for one message, written as a JSON line to standard output.
type result struct {
	Path  []byte `json:"path"` // base64 in JSON, since a path need not be UTF-8
	Sum   string `json:"sum,omitempty"`
	Error string `json:"error,omitempty"` // reason why Sum is empty
}

// client connects to the broker. Retries of go-redis are off: only the caller knows which
// command may be sent a second time.
func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: 10 * time.Second})
}

// work leases, hashes and acks messages until its input ends: the parent closes it, or has
// exited. The broker may restart in the meantime.
func work(ctx context.Context, addr, name string, input io.Reader, output io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input) // an error ends the work as well
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

// round leases messages, hashes the files and acks.
func round(ctx context.Context, c *redis.Client, name string, output *json.Encoder) error {
	messages, err := c.Do(ctx, "FILA.LEASE", queue, "COUNT", 8, "BLOCK", 250, "CONSUMER", name).Slice()
	if err != nil {
		return pause(ctx, err)
	}
	ack := []any{"FILA.ACK", queue}
	for _, m := range messages {
		fields, ok := m.([]any)
		if !ok || len(fields) < 2 {
			return fmt.Errorf("unexpected reply to FILA.LEASE: %v", m)
		}
		path := fmt.Sprint(fields[1])
		r := result{Path: []byte(path)}
		if r.Sum, err = sum(path); err != nil {
			r.Error = err.Error()
		}
		// The result precedes the ack: otherwise a worker that is killed in between would
		// lose the message.
		if err := output.Encode(r); err != nil {
			return err
		}
		ack = append(ack, fields[0])
	}
	// Receipts survive a restart of the broker, so an ack without a reply is sent again
	// instead of repeating the work.
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

// pause waits a moment if the broker is down or recovering. It returns any other error.
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
