// Package config has the parameters of an engine: their defaults, what they mean, and which values it could not work with.
package config

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/internal/decay"
	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/rs/zerolog"
)

// SyncMode says when a commit becomes durable. In every mode a batch is atomic, and a reply
// that promises a change leaves after the commit of its batch.
type SyncMode uint8

const (
	// SyncAlways syncs each commit before its replies leave: they survive a power loss.
	SyncAlways SyncMode = iota
	// SyncInterval syncs every Config.SyncInterval. A reply survives a killed process
	// immediately, and a power loss after the interval.
	SyncInterval
	// SyncNever leaves syncing to the operating system. A reply survives a killed process.
	SyncNever
)

// Config are the parameters of an engine. The zero value is invalid: start from Default.
// The engine checks a Config and copies it.
type Config struct {
	Visibility      time.Duration // visibility timeout of a lease where neither command nor queue sets one
	Backoff         time.Duration // delay of the first retry of a nacked message, doubled for each further retry
	MaxBackoff      time.Duration // longest delay of a retry
	Jitter          uint32        // percentage, 0 to 100, by which a delay may be shortened at random
	MaxAttempts     uint32        // failures after which a message is dead
	DedupWindow     time.Duration // deduplication window of a queue that is created without one; 0: none
	Quantum         uint32        // credit per round and unit of weight, at least 1, see package dispatch
	MaxBlock        time.Duration // longest wait of a blocking command; 0: no bound
	LeaseWriteDelay time.Duration // delay of lease records: a lease that ends within it is never written
	Sync            SyncMode      // when a commit becomes durable
	SyncInterval    time.Duration // time between syncs in mode SyncInterval
	Limits          limits.Limits // bounds of messages and commands
	Scripts         hook.Loader   // compiles hooks; nil: scripts are refused
	Backups         Backups       // makes backups; nil: backups are refused
	LastBackup      time.Time     // time of the newest backup made before this start; zero: none
	Start           time.Time     // origin of Elapsed, with a monotonic reading; zero: the time of loop.New

	BatchBytes int // bytes of the open batch above which it accepts no further tasks
	InboxTasks int // tasks in the inbox; Submit waits while it is full
	InboxBytes int // bytes that the tasks in the inbox announce; Submit waits above it
	ReplyBytes int // bytes of the messages in the reply of one transaction
	// HistoryBytes bounds the histories of all hooks together, in bytes of their records. The
	// source that was loaded last is kept, whatever it has.
	HistoryBytes int

	Window      int   // messages in the head cache of one fairness key, at least 2
	WindowTotal int   // messages in all head caches; caches shrink as the total approaches it
	BodyBytes   int64 // bytes of payloads and headers in memory outside the store
	DueWindow   int   // entries of a due-time index in memory, at least 2
	ReadsMax    int   // window reads in progress at the same time; after a start readsAtStart times as many
	ReadBytes   int   // bytes after which one read ends

	GroupsKeep time.Duration // how long a group is known after its end

	HistoryDays int // days for which the ledger of budgets is kept, 1 to 400

	FiguresAge time.Duration // age up to which figures of all fairness keys are shown without another sweep

	SignalWindows    []time.Duration // windows of the sums of signals, rising, see decay.NewWindows
	SignalCheckpoint time.Duration   // how long additions of the engine to signals may be unwritten

	// Observe is called with the duration of each turn and commit, on the goroutine that ran
	// it. It must not block. Nil: not called.
	Observe func(what Activity, took time.Duration)

	// Held is called when the messages and fairness keys in memory have grown or shrunk by 8 MiB
	// since its last call, on the goroutine of the loop, and with 0 when the loop ends. Its
	// argument is what they take at least, in bytes. It must not block. Nil: not called.
	Held func(bytes int64)

	// Memory tells what the process may use; it is called in each turn, and has to be cheap. Nil: there is
	// no bound.
	Memory func() Memory

	// Confirm is what a leader asks before it answers what no commit of its own has confirmed;
	// nil: the engine has the store to itself. It returns nil if no other node could have led
	// when it was called: then a majority, asked after the call, was still in the term of this
	// engine's store. An answer that may have been under way for long does not count, as after a
	// process that was stopped. While it cannot know, it blocks. An error says that another node leads or may
	// lead, and halts the engine. It is called on a goroutine of its own, once at a time.
	Confirm func() error
	// KeepTime writes the time of the turn with each batch, not only now and then (package clock): the
	// time does not go back at all where another node takes over.
	KeepTime bool

	RetryInterval time.Duration  // time between two attempts to reopen a failed store
	Seed          uint64         // of the engine's random numbers: equal seeds and tasks give equal decisions
	Log           zerolog.Logger // state changes and failures; nothing per command
}

// Memory is what the process may use of memory.
type Memory struct {
	Used, Limit int64 // bytes; Limit is 0 without a bound
	// Full has everything refused that needs more, as a new message does.
	Full bool
}

// Activity is something that the engine does and that may take long.
type Activity uint8

// The activities that Config.Observe reports.
const (
	ActivityTurn   Activity = iota // one turn of the loop; all tasks wait for it
	ActivityCommit                 // the write of one batch, including its sync
)

// Default returns the documented defaults, with no scripts, no backups and no logger.
func Default() Config {
	return Config{
		Visibility: 30 * time.Second, Backoff: time.Second, MaxBackoff: 5 * time.Minute, MaxAttempts: 10, DedupWindow: 5 * time.Minute,
		Quantum: 1, LeaseWriteDelay: 5 * time.Millisecond, SyncInterval: 100 * time.Millisecond,
		Limits:     limits.Default(),
		BatchBytes: 4 << 20, InboxTasks: 1 << 16, InboxBytes: 64 << 20, ReplyBytes: 64 << 20, HistoryBytes: 64 << 20,
		Window: 256, WindowTotal: 400_000, BodyBytes: 128 << 20, DueWindow: 4096, ReadsMax: 16, ReadBytes: 1 << 20, FiguresAge: 5 * time.Second,
		SignalWindows: []time.Duration{time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour}, SignalCheckpoint: 10 * time.Second,
		HistoryDays:   35,
		GroupsKeep:    24 * time.Hour,
		RetryInterval: time.Second, Seed: 1, Log: zerolog.Nop(),
	}
}

// QueueDefaults returns the settings of a queue that is created without options: those that
// the configuration has, and the others' defaults in the table.
func (c *Config) QueueDefaults() queueset.Values {
	var v queueset.Values
	for s, row := range queueset.All() {
		v[s] = row.Default
	}
	v.SetDuration(queueset.Visibility, c.Visibility)
	v.SetDuration(queueset.Backoff, c.Backoff)
	v.SetDuration(queueset.MaxBackoff, c.MaxBackoff)
	v.SetDuration(queueset.DedupWindow, c.DedupWindow)
	v[queueset.BackoffJitter], v[queueset.MaxAttempts] = uint64(c.Jitter), uint64(c.MaxAttempts)
	return v
}

// Check returns an error for values with which the engine could not keep its promises.
func (c *Config) Check() error {
	checks := []struct {
		name string
		ok   bool
	}{
		{"visibility", c.Visibility > 0}, {"backoff", c.Backoff >= 0}, {"max backoff", c.MaxBackoff >= c.Backoff},
		{"jitter", c.Jitter <= 100}, {"dedup window", c.DedupWindow >= 0}, {"quantum", c.Quantum > 0}, {"max block", c.MaxBlock >= 0}, {"lease lag", c.LeaseWriteDelay >= 0},
		{"sync interval", c.Sync != SyncInterval || c.SyncInterval > 0},
		{"batch bytes", c.BatchBytes > 0}, {"inbox tasks", c.InboxTasks > 0}, {"inbox bytes", c.InboxBytes > 0}, {"reply bytes", c.ReplyBytes > 0}, {"history bytes", c.HistoryBytes >= 0},
		{"window", c.Window >= 2}, {"window total", c.WindowTotal >= c.Window}, {"body bytes", c.BodyBytes >= 0},
		{"due window", c.DueWindow >= 2}, {"reads", c.ReadsMax > 0}, {"read bytes", c.ReadBytes > 0},
		{"groups keep", c.GroupsKeep > 0}, {"history days", c.HistoryDays >= 1 && c.HistoryDays <= 400}, {"figures age", c.FiguresAge > 0}, {"signal checkpoint", c.SignalCheckpoint > 0}, {"retry interval", c.RetryInterval > 0},
	}
	for _, p := range checks {
		if !p.ok {
			return fmt.Errorf("engine: %s is out of range", p.name)
		}
	}
	if _, err := decay.NewWindows(c.SignalWindows); err != nil {
		return fmt.Errorf("engine: signal windows: %w", err)
	}
	return c.Limits.Check()
}

// Backups makes copies of the store. The engine calls Check in a turn and Take off the
// loop, one at a time.
type Backups interface {
	// Check returns what is wrong with the name of a new backup.
	Check(name string) error
	// Take copies the store as it is now, and returns the path of the copy once it is
	// durable.
	Take(name string) (path string, err error)
}
