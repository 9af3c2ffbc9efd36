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
	"github.com/faisca/fila/internal/smalldisk"
)

// trouble is a disk that takes no writes for a while.
type trouble interface {
	Begin() error // before the process starts
	Fail() error
	Heal() error
	Close() error
	// Reads tells whether reads have to go on meanwhile.
	Reads() bool
}

// small is a file system of its own that is filled up and emptied again. It needs
// the right to mount.
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

// injected is a disk that fails to order: in its syncs, or in its writes for lack of
// space. The store cannot be reopened then, so nothing can be read from it either.
type injected struct {
	*powerloss.Disk
	fail func() error
}

func (d *injected) Fail() error  { return d.fail() }
func (d *injected) Close() error { return nil }
func (d *injected) Reads() bool  { return false }

const (
	noticeMax = 20 * time.Second // until a write fails: space reserved before is used up first
	healMax   = 30 * time.Second
)

// fail lets the disk take no writes for a while, and sees that the broker says so,
// and serves again by itself. For the history it is a crash: leases that were not
// written yet are forgotten when the broker recovers in place.
func (s *session) fail() error {
	c := s.crowd.client(0)
	defer c.redis.Close()
	cut := history.Crash{At: s.crowd.now()}
	if err := s.trouble.Fail(); err != nil {
		return err
	}
	if err := until(noticeMax, func() bool { return strings.HasPrefix(write(c.redis), "MISCONF ") }); err != nil {
		return fmt.Errorf("the disk takes no writes, and no client is told: %w", err)
	}
	for end := time.Now().Add(time.Duration(s.chance.IntN(2000)) * time.Millisecond); time.Now().Before(end); pause(20 * time.Millisecond) {
		if err := s.reads(c.redis); err != nil {
			return fmt.Errorf("the disk takes no writes, and reads fail: %w", err)
		}
	}
	if err := s.trouble.Heal(); err != nil {
		return err
	}
	if err := until(healMax, func() bool { return write(c.redis) == "" }); err != nil {
		return fmt.Errorf("the disk takes writes again, and the broker does not: %w", err)
	}
	cut.Back = s.crowd.now()
	s.history.Crashes = append(s.history.Crashes, cut)
	return nil
}

// write changes something that no message depends on, and returns how it was refused.
func write(c *redis.Client) string {
	if err := c.Do(context.Background(), "FILA.THROTTLE", "SET", "probe", "RATE", 1000).Err(); err != nil {
		return err.Error()
	}
	return ""
}

// reads does what has to work without a disk that can be written to.
func (s *session) reads(c *redis.Client) error {
	commands := [][]any{{"PING"}, {"INFO"}}
	if s.trouble.Reads() {
		commands = append(commands, []any{"FILA.STATS"}, []any{"FILA.QUEUE", "LIST"}, []any{"FILA.KEYS", steady})
	}
	for _, args := range commands {
		if err := c.Do(context.Background(), args...).Err(); err != nil {
			return fmt.Errorf("%v: %w", args, err)
		}
	}
	return nil
}

// until polls.
func until(limit time.Duration, yes func() bool) error {
	for end := time.Now().Add(limit); !yes(); pause(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("after %v", limit)
		}
	}
	return nil
}
