package engine

import (
	"slices"
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/figures"
)

type (
	// Counts are the messages and events of a queue, or of all.
	Counts = figures.Counts
	// Events are how often each event has happened.
	Events = figures.Events
	// Durations are the histograms of waits and of work.
	Durations = figures.Durations
	// Outcome is how a lease ended.
	Outcome = figures.Outcome
	// BusyKey is one of the busiest keys of a queue.
	BusyKey = figures.BusyKey
	// Moment is a line of a history.
	Moment = figures.Moment
	// KeyMoment is a line of the history of a fairness key.
	KeyMoment = figures.KeyMoment
	// ThrottleMoment is a line of the history of a throttle.
	ThrottleMoment = figures.ThrottleMoment
	// Order is by what a sweep ranks keys.
	Order = figures.Order
	// Trouble is a reason why an operator should look at a queue.
	Trouble = figures.Trouble
	// TroubleGroup are the queues that have a trouble.
	TroubleGroup = figures.TroubleGroup
	// TroubleGroups are the queues by trouble.
	TroubleGroups = figures.TroubleGroups
	// Column is what queues are sorted by.
	Column = figures.Column
	// Sort is an order of queues.
	Sort = figures.Sort
)

// The orders of fairness keys, and how many there are of what.
const (
	ByDepth             = figures.ByDepth
	ByAge               = figures.ByAge
	ByDelivered         = figures.ByDelivered
	ByBehind            = figures.ByBehind
	Orders              = figures.Orders
	Outcomes            = figures.Outcomes
	MomentsMax          = 150                        // moments of a history, at most
	KeyHistories        = figures.FollowedMax        // keys that have a history, at most
	KeyHistoriesOfQueue = figures.FollowedOfQueueMax // those of a queue
	ThrottleHistories   = figures.ThrottlesMax       // throttles that have a history, at most
	HistoryMax          = 24 * time.Hour             // how far a history of a queue goes back
	Troubles            = figures.Troubles
	Columns             = figures.Columns
)

// EveryTrouble are all troubles.
const EveryTrouble figures.TroubleSet = 1<<Troubles - 1

// ParseCursor returns the place in a sorted listing that a cursor says.
func ParseCursor(cursor string) (figures.Place, bool) { return figures.ParseCursor(cursor) }

// counts returns those of all queues, deleted ones included, in constant time.
func (c *core) counts() Counts { return c.queues.figures.Counts(c.heads.keys) }

// Stats describe the engine as a whole. The counters count since the start of the broker, those
// of deleted queues included.
type Stats struct {
	Counts
	Queues     int64
	Crons      int64 // recurring messages
	DeadCrons  int64 // those without a next tick, as their time zone is gone
	Budgets    int64
	Held       int64              // fairness keys that have come up and that a budget did not cover
	Blocked    int64              // clients with a parked task
	Writable   bool               // the store takes writes
	Recoveries uint64             // in place, after failed commits
	Turns      uint64             // turns of the loop
	Tasks      uint64             // tasks applied
	Commits    uint64             // batches committed
	InMemory   int64              // messages in head caches
	BodyBytes  int64              // payloads and headers in memory outside the store
	Instances  dispatch.Instances // throttles of patterns
	Now        time.Time          // of the turn
	Backup     BackupStatus
	// Ticks of recurring messages that enqueued a message, and that did not.
	Ticked, Missed uint64
	Topics         TopicStats
	// Backups that have ended well, and that have not.
	BackedUp, FailedToBackUp uint64
	Signals                  int64  // pairs of subject and name
	SignalsEvicted           uint64 // those that made room for others
	Memory                   Memory // of the process
	InUse                    int64  // bytes that keys, messages and bodies take, at least
	// By how much the system clock is behind the time of the broker; 0: at most a second.
	ClockBehind time.Duration
}

// Stats describes the engine, in constant time.
func (tx *Tx) Stats() Stats {
	c := tx.core
	n := &c.health.counters
	crons, dead := c.cron.Len()
	return Stats{
		Counts: c.counts(), Queues: int64(len(c.queues.byName)), Crons: int64(crons), DeadCrons: int64(dead), Budgets: int64(c.accounts.Len()), Held: c.order.Held(), Blocked: int64(len(c.waits.parked)), Writable: c.storeTakesNew() == nil,
		Recoveries: n.recoveries, Turns: n.turns, Tasks: n.tasks, Commits: c.out.committed, InMemory: int64(c.heads.messages), BodyBytes: c.heads.bodyBytes, Instances: c.order.Instances(),
		Now: tx.Now(), Backup: tx.Backups(), Ticked: n.ticked, Missed: n.missed, Topics: c.topics.Stats(), BackedUp: n.backedUp, FailedToBackUp: n.failedToBackUp,
		Signals: int64(c.signals.Len()), SignalsEvicted: c.signals.Evicted(),
		ClockBehind: c.time.Behind(), Memory: c.health.memory, InUse: c.held(),
	}
}

// Reasons of a dead message; reasonTTL is in removal.go. They are part of the protocol.
const (
	reasonAttempts = "attempts"
	reasonNack     = "nack"
	reasonHook     = "on_failure"
)

// DeadReasons are the reasons in the order of Counts.DeadBy, and of the events from figures.Died on.
func DeadReasons() [figures.DeadReasons]string {
	return [...]string{reasonAttempts, reasonNack, reasonHook, reasonTTL}
}

// deadReason returns the event of a reason.
func deadReason(reason string) figures.Event {
	reasons := DeadReasons()
	return figures.Died + figures.Event(max(slices.Index(reasons[:], reason), 0))
}
