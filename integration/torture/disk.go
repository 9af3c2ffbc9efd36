package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/history"
	"github.com/faisca/fila/integration/powerloss"
	"github.com/faisca/fila/internal/testkit/smalldisk"
)

// diskFault makes the disk refuse writes for a while.
type diskFault interface {
	Begin() error // before the process starts
	Fail() error
	Heal() error
	Close() error
	// Reads reports whether reads must work during the fault.
	Reads() bool
}

// small is a separate file system that is filled up and emptied again. It requires the right to
// mount.
type small struct{ dir string }

const smallBytes = 96 << 20

func newSmall(dir string) (*small, error) {
	if err := os.Mkdir(dir, 0o750); err != nil {
		return nil, err
	}
	return &small{dir}, smalldisk.Mount(dir, smallBytes)
}

func (s *small) Begin() error { return nil }
func (s *small) Fail() error  { return smalldisk.Fill(s.dir) }
func (s *small) Heal() error  { return smalldisk.Empty(s.dir) }
func (s *small) Close() error { return smalldisk.Detach(s.dir) }
func (s *small) Reads() bool  { return true }

// injected is a disk that fails on command: in syncs, or in writes for lack of space. The store
// cannot be reopened during the fault, so it cannot be read either.
type injected struct {
	*powerloss.Disk
	fail func() error
}

func (d *injected) Fail() error  { return d.fail() }
func (d *injected) Close() error { return nil }
func (d *injected) Reads() bool  { return false }

// fail makes the disk refuse writes for a while, and verifies that the broker reports it and then
// recovers by itself. The history records a crash: a recovery in place forgets leases that were not
// written yet.
func (s *single) fail() error {
	c := s.shared.client(0)
	defer c.redis.Close()
	cut := history.Crash{At: s.shared.now()}
	if err := s.fault.Fail(); err != nil {
		return err
	}
	// Preallocated space is used up first.
	if err := until(patience, func() bool { return strings.HasPrefix(write(c.redis), "MISCONF ") }); err != nil {
		return fmt.Errorf("the disk refuses writes, but the broker reports no error: %w", err)
	}
	for end := time.Now().Add(time.Duration(s.chance.IntN(2000)) * time.Millisecond); time.Now().Before(end); pause(20 * time.Millisecond) {
		if err := s.reads(c.redis); err != nil {
			return fmt.Errorf("the disk refuses writes, and reads fail: %w", err)
		}
	}
	if err := s.fault.Heal(); err != nil {
		return err
	}
	if err := until(patience, func() bool { return write(c.redis) == "" }); err != nil {
		return fmt.Errorf("the disk accepts writes again, but the broker does not: %w", err)
	}
	cut.Back = s.shared.now()
	s.cuts = append(s.cuts, cut)
	return nil
}

// write makes a change that no message depends on, and returns the error.
func write(c *redis.Client) string {
	if err := c.Do(context.Background(), "FILA.THROTTLE", "SET", "probe", "RATE", 1000).Err(); err != nil {
		return err.Error()
	}
	return ""
}

// reads executes commands that must work while the disk refuses writes.
func (s *single) reads(c *redis.Client) error {
	commands := [][]any{{"PING"}, {"INFO"}}
	if s.fault.Reads() {
		commands = append(commands, []any{"FILA.STATS"}, []any{"FILA.QUEUE", "LIST"}, []any{"FILA.KEYS", steady})
	}
	for _, args := range commands {
		if err := c.Do(context.Background(), args...).Err(); err != nil {
			return fmt.Errorf("%v: %w", args, err)
		}
	}
	return nil
}

// until polls until yes returns true, for at most limit.
func until(limit time.Duration, yes func() bool) error {
	for end := time.Now().Add(limit); !yes(); pause(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("after %v", limit)
		}
	}
	return nil
}
