package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/hook"
)

// SyncMode says when a commit is made durable.
type SyncMode uint8

const (
	// SyncAlways makes a reply wait for the disk: it survives power loss.
	SyncAlways SyncMode = iota
	// SyncInterval syncs every Config.SyncInterval: a reply survives a killed
	// process at once and power loss after the interval.
	SyncInterval
	// SyncNever leaves it to the system: a reply survives a killed process.
	SyncNever
)

// Limits bound what one message or command may hold.
type Limits struct {
	hook.Limits
	QueueName   int // bytes
	Dedup       int // bytes of a deduplication id
	HeaderName  int // bytes
	HeaderValue int // bytes
	Headers     int // headers a message
	Payload     int // bytes
	Count       int // messages a lease
	Crons       int // recurring messages there may be
	Values      int // of the runtime configuration
	ValueBytes  int // of all of them together, with their keys
}

// Config is what an engine is made of. The zero value is not usable, start from
// DefaultConfig.
type Config struct {
	Visibility   time.Duration // of a lease where neither command nor queue says otherwise
	Backoff      time.Duration // before the first retry of a nacked message, doubled for each further one
	MaxBackoff   time.Duration // the longest pause between two retries
	Jitter       uint32        // percentage of such a pause that chance may take off
	MaxAttempts  uint32        // failures until a message is dead
	DedupWindow  time.Duration // of a queue that is created without one
	Quantum      uint32        // DRR credit per round and unit of weight
	MaxBlock     time.Duration // caps BLOCK; 0: no cap
	LeaseLag     time.Duration // a lease that ends sooner is never written
	Sync         SyncMode
	SyncInterval time.Duration // for SyncInterval
	Limits       Limits
	Scripts      hook.Loader // compiles hooks; nil: there are none
	Backups      Backups     // nil: there are none
	LastBackup   time.Time   // when the newest backup of an earlier start was done; zero: none

	BatchBytes int // an open batch that is larger takes no further tasks
	InboxTasks int // Submit waits while more are queued
	InboxBytes int // the same, for the bytes that tasks announce
	ReplyBytes int // bytes of the messages that one transaction may show

	Window      int   // messages of a fairness key held in memory, see key.go
	WindowTotal int   // of all keys together; windows shrink as it is neared
	BodyBytes   int64 // payloads and headers held in memory beside the store
	DueWindow   int   // entries of the due-time index held in memory
	ReadsMax    int   // reads under way at the same time
	ReadBytes   int   // one read ends after this many bytes

	// Observe is told how long each turn and each commit took, on their goroutines:
	// it must not wait. Nil: nobody is.
	Observe func(what Activity, took time.Duration)

	MendInterval time.Duration // between two tries to make a failed store write again
	Seed         uint64        // of the engine's random numbers
	Log          zerolog.Logger
}

// Activity is something of the engine's that may take long.
type Activity uint8

// The activities that Config.Observe is told of.
const (
	ActivityTurn   Activity = iota // one turn of the loop: everybody waits for it
	ActivityCommit                 // the write of one batch, with its fsync
)

// DefaultConfig returns the documented defaults.
func DefaultConfig() Config {
	return Config{
		Visibility: 30 * time.Second, Backoff: time.Second, MaxBackoff: 5 * time.Minute, MaxAttempts: 10, DedupWindow: 5 * time.Minute,
		Quantum: 1, LeaseLag: 5 * time.Millisecond, SyncInterval: 100 * time.Millisecond,
		Limits: Limits{
			Limits:    hook.DefaultLimits(),
			QueueName: 255, Dedup: 512, HeaderName: 512, HeaderValue: 8 << 10, Headers: 64, Payload: 16 << 20,
			Count: 10_000, Crons: 10_000, Values: 100_000, ValueBytes: 64 << 20,
		},
		BatchBytes: 4 << 20, InboxTasks: 1 << 16, InboxBytes: 64 << 20, ReplyBytes: 64 << 20,
		Window: 256, WindowTotal: 400_000, BodyBytes: 128 << 20, DueWindow: 4096, ReadsMax: 16, ReadBytes: 1 << 20,
		MendInterval: time.Second, Seed: 1, Log: zerolog.Nop(),
	}
}

// check refuses values with which the engine could not keep its promises.
func (c *Config) check() error {
	positive := []struct {
		name string
		ok   bool
	}{
		{"visibility", c.Visibility > 0}, {"backoff", c.Backoff >= 0}, {"max backoff", c.MaxBackoff >= c.Backoff},
		{"jitter", c.Jitter <= jitterMax}, {"dedup window", c.DedupWindow >= 0}, {"quantum", c.Quantum > 0}, {"max block", c.MaxBlock >= 0}, {"lease lag", c.LeaseLag >= 0},
		{"sync interval", c.Sync != SyncInterval || c.SyncInterval > 0},
		{"batch bytes", c.BatchBytes > 0}, {"inbox tasks", c.InboxTasks > 0}, {"inbox bytes", c.InboxBytes > 0}, {"reply bytes", c.ReplyBytes > 0},
		{"window", c.Window >= 2}, {"window total", c.WindowTotal >= c.Window}, {"body bytes", c.BodyBytes >= 0},
		{"due window", c.DueWindow >= 2}, {"reads", c.ReadsMax > 0}, {"read bytes", c.ReadBytes > 0},
		{"mend interval", c.MendInterval > 0},
	}
	for _, p := range positive {
		if !p.ok {
			return fmt.Errorf("engine: impossible %s", p.name)
		}
	}
	l := c.Limits
	if min(l.QueueName, l.Key, l.Throttle, l.HeaderName, l.HeaderValue, l.Headers, l.Payload, l.Count, l.Script, l.Crons, l.Values, l.ValueBytes) <= 0 || l.Weight == 0 || l.Cost == 0 {
		return errors.New("engine: a limit of 0 would refuse everything")
	}
	if max(l.QueueName, l.Key, l.Throttle, l.HeaderName) > 1<<15 {
		return errors.New("engine: names longer than 32768 bytes do not fit a key of the store")
	}
	return nil
}
