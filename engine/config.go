package engine

import (
	"time"

	"github.com/faisca/fila/engine/config"
	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/queueset"
)

type (
	// Config are the parameters of an engine.
	Config = config.Config
	// Limits bound what clients send.
	Limits = limits.Limits
	// SyncMode says when a commit becomes durable.
	SyncMode = config.SyncMode
	// Memory is what the process may use of memory.
	Memory = config.Memory
	// Activity is something that the engine does and that may take long.
	Activity = config.Activity
	// Backups makes copies of the store.
	Backups = config.Backups
)

// The sync modes, and what Config.Observe reports.
const (
	SyncAlways     = config.SyncAlways
	SyncInterval   = config.SyncInterval
	SyncNever      = config.SyncNever
	ActivityTurn   = config.ActivityTurn
	ActivityCommit = config.ActivityCommit
)

// DefaultConfig returns the documented defaults, with no scripts, no backups and no logger.
func DefaultConfig() Config { return config.Default() }

// The refusals of the engine, which package refusals describes. They are returned wrapped with what was attempted: compare
// them with errors.Is. The commands package maps each of them to its code on the wire.
var (
	ErrNoQueue       = refusals.ErrNoQueue
	ErrQueueExists   = refusals.ErrQueueExists
	ErrQueueNotEmpty = refusals.ErrQueueNotEmpty
	ErrNoMessage     = refusals.ErrNoMessage
	ErrLeaseLost     = refusals.ErrLeaseLost
	ErrBadReceipt    = refusals.ErrBadReceipt
	ErrInvalid       = refusals.ErrInvalid
	ErrTooBig        = refusals.ErrTooBig
	ErrMaxDepth      = refusals.ErrMaxDepth
	ErrScript        = refusals.ErrScript
	ErrNoBudget      = refusals.ErrNoBudget
	ErrCredit        = refusals.ErrCredit
	ErrNoGroup       = refusals.ErrNoGroup
	ErrSealed        = refusals.ErrSealed
	ErrCancelled     = refusals.ErrCancelled
	ErrBusy          = refusals.ErrBusy
	ErrPaused        = refusals.ErrPaused
	ErrUnreadable    = refusals.ErrUnreadable
	ErrMemory        = refusals.ErrMemory
	ErrMisconf       = refusals.ErrMisconf
	ErrBackupRunning = refusals.ErrBackupRunning
	ErrTakeover      = refusals.ErrTakeover
	ErrDeposed       = refusals.ErrDeposed
	ErrStopped       = refusals.ErrStopped
	ErrUnblocked     = refusals.ErrUnblocked
	ErrClientGone    = refusals.ErrClientGone
	ErrWouldBlock    = refusals.ErrWouldBlock
)

// BudgetsMax bounds the budgets of a message.
const BudgetsMax = credit.BudgetsMax

// durationMax bounds every duration a client gives: a century keeps all sums of
// times far from overflow.
const durationMax = queueset.MillisMax * time.Millisecond
