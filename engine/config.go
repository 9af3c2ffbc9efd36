package engine

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/faisca/fila/engine/internal/decay"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
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

// Limits bound a single message or command, and tables that no message bounds. All limits are
// inclusive and must be positive. Exceeding one is refused with ErrTooBig or ErrInvalid, before
// anything has changed.
type Limits struct {
	hook.Limits
	QueueName   int // bytes of a queue name
	Dedup       int // bytes of a deduplication id
	HeaderName  int // bytes of a header's name
	HeaderValue int // bytes of a header's value
	Headers     int // headers of a message
	Payload     int // bytes of a payload
	Result      int // bytes of a result
	Count       int // messages of one lease command
	Crons       int // recurring messages in total
	Signals     int // pairs of subject and name; one more takes the place of another
	Budgets     int // budgets in total
	Groups      int // groups that have not come to their end
	Holds       int // throttle keys that are held at a time; one more takes the place of another
	Instances   int // throttles of patterns in memory that nothing names any more; 0: 1,000,000
	Values      int // entries of the runtime configuration
	ValueBytes  int // bytes of these entries, keys included
}

// Config are the parameters of an engine. The zero value is invalid: start from DefaultConfig.
// New checks a Config and copies it.
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
	Limits          Limits        // bounds of messages and commands
	Scripts         hook.Loader   // compiles hooks; nil: scripts are refused
	Backups         Backups       // makes backups; nil: backups are refused
	LastBackup      time.Time     // time of the newest backup made before this start; zero: none
	Start           time.Time     // origin of Engine.Elapsed, with a monotonic reading; zero: the time of New

	BatchBytes int // bytes of the open batch above which it accepts no further tasks
	InboxTasks int // tasks in the inbox; Submit waits while it is full
	InboxBytes int // bytes that the tasks in the inbox announce; Submit waits above it
	ReplyBytes int // bytes of the messages in the reply of one transaction
	// HistoryBytes bounds the histories of all hooks together, in bytes of their records. The
	// source that was loaded last is kept, whatever it has.
	HistoryBytes int

	Window      int   // messages in the head cache of one fairness key, at least 2, see key.go
	WindowTotal int   // messages in all head caches; caches shrink as the total approaches it
	BodyBytes   int64 // bytes of payloads and headers in memory outside the store
	DueWindow   int   // entries of a due-time index in memory, at least 2
	ReadsMax    int   // window reads in progress at the same time
	ReadBytes   int   // bytes after which one read ends

	GroupsKeep time.Duration // how long a group is known after its end

	HistoryDays int // days for which the ledger of budgets is kept, 1 to 400

	FiguresAge time.Duration // age up to which figures of all fairness keys are shown without another sweep, see figures.go

	SignalWindows    []time.Duration // windows of the sums of signals, rising, see decay.NewWindows
	SignalCheckpoint time.Duration   // how long additions of the engine to signals may be unwritten

	// Observe is called with the duration of each turn and commit, on the goroutine that ran
	// it. It must not block. Nil: not called.
	Observe func(what Activity, took time.Duration)

	// Held is called when the messages and fairness keys in memory have grown or shrunk by heldStep bytes
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
	// KeepTime writes the time of the turn with each batch, not only now and then (time.go): the
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

// heldStep is how many bytes what is held has changed by, at least, when Config.Held is called.
const heldStep = 8 << 20

// Activity is something that the engine does and that may take long.
type Activity uint8

// The activities that Config.Observe reports.
const (
	ActivityTurn   Activity = iota // one turn of the loop; all tasks wait for it
	ActivityCommit                 // the write of one batch, including its sync
)

// DefaultConfig returns the documented defaults, with no scripts, no backups and no logger.
func DefaultConfig() Config {
	return Config{
		Visibility: 30 * time.Second, Backoff: time.Second, MaxBackoff: 5 * time.Minute, MaxAttempts: 10, DedupWindow: 5 * time.Minute,
		Quantum: 1, LeaseWriteDelay: 5 * time.Millisecond, SyncInterval: 100 * time.Millisecond,
		Limits: Limits{
			Limits:    hook.DefaultLimits(),
			QueueName: 255, Dedup: 512, HeaderName: 512, HeaderValue: 8 << 10, Headers: 64, Payload: 16 << 20, Result: 1 << 20,
			Count: 10_000, Crons: 10_000, Budgets: 100_000, Signals: 100_000, Holds: 100_000, Groups: 100_000, Instances: 1_000_000, Values: 100_000, ValueBytes: 64 << 20,
		},
		BatchBytes: 4 << 20, InboxTasks: 1 << 16, InboxBytes: 64 << 20, ReplyBytes: 64 << 20, HistoryBytes: 64 << 20,
		Window: 256, WindowTotal: 400_000, BodyBytes: 128 << 20, DueWindow: 4096, ReadsMax: 16, ReadBytes: 1 << 20, FiguresAge: 5 * time.Second,
		SignalWindows: []time.Duration{time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour}, SignalCheckpoint: 10 * time.Second,
		HistoryDays:   35,
		GroupsKeep:    24 * time.Hour,
		RetryInterval: time.Second, Seed: 1, Log: zerolog.Nop(),
	}
}

// queueDefaults returns the settings of a queue that is created without options: those that
// the configuration has, and the others' defaults in the table.
func (c *Config) queueDefaults() queueset.Values {
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

// check returns an error for values with which the engine could not keep its promises.
func (c *Config) check() error {
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
	l := c.Limits
	if min(l.QueueName, l.Key, l.Throttle, l.HeaderName, l.HeaderValue, l.Headers, l.Payload, l.Count, l.Script, l.Crons, l.Budgets, l.Groups, l.Signals, l.Values, l.ValueBytes) <= 0 || l.Weight == 0 || l.Cost == 0 {
		return errors.New("engine: a limit of 0 would refuse everything")
	}
	if max(l.QueueName, l.Key, l.Throttle, l.HeaderName) > 1<<15 {
		return errors.New("engine: names longer than 32768 bytes do not fit a key of the store")
	}
	return nil
}

// The refusals of the engine. They are returned wrapped with what was attempted: compare them
// with errors.Is. After a refusal nothing has changed. The commands package maps each of them
// to its code on the wire.
var (
	// ErrNoQueue refuses a call that names a queue which does not exist.
	ErrNoQueue = errors.New("no such queue")
	// ErrQueueExists refuses to create a queue under a name that is in use.
	ErrQueueExists = errors.New("the queue exists already")
	// ErrQueueNotEmpty refuses to delete a queue with messages, unless forced.
	ErrQueueNotEmpty = errors.New("the queue still holds messages, use FORCE to delete them with it")
	// ErrNoMessage refuses an id that names no message of the queue.
	ErrNoMessage = errors.New("no such message")
	// ErrLeaseLost refuses a receipt whose lease has ended: acked, nacked, released or expired.
	ErrLeaseLost = errors.New("the lease is over")
	// ErrBadReceipt refuses what has neither the form of a receipt nor that of a message id.
	ErrBadReceipt = errors.New("not a message id or receipt")
	// ErrInvalid refuses a value that is out of range or combined with another in a way that
	// has no meaning. The text names the value.
	ErrInvalid = errors.New("not allowed")
	// ErrTooBig refuses what exceeds one of the Limits. The text names the limit.
	ErrTooBig = errors.New("too big")
	// ErrMaxDepth refuses an enqueue to a queue that has reached its greatest depth.
	ErrMaxDepth = errors.New("the queue is full")
	// ErrScript refuses a script that does not compile or define its function.
	ErrScript = errors.New("the script does not load")
	// ErrNoBudget refuses a call that names a budget which does not exist.
	ErrNoBudget = errors.New("no such budget")
	// ErrCredit refuses a charge that a budget does not cover.
	ErrCredit = errors.New("not enough credits")
	// ErrNoGroup refuses a call that names a group which does not exist, or is not known any more.
	ErrNoGroup = errors.New("no such group")
	// ErrSealed refuses a member of a group that takes no more of them.
	ErrSealed = errors.New("the group is sealed")
	// ErrCancelled refuses a longer lease of a message whose group is cancelled.
	ErrCancelled = errors.New("the group of the message is cancelled")
	// ErrBusy refuses a script because too many others wait to be loaded.
	ErrBusy = hook.ErrBusy
	// ErrPaused refuses an enqueue to a queue whose intake is paused.
	ErrPaused = errors.New("the queue is paused")
	// ErrUnreadable refuses what needs a record that the store cannot read.
	ErrUnreadable = storage.ErrUnreadable
	// ErrMemory refuses what needs more memory than the process may use. errors.Is takes it for an ErrMisconf as
	// well: callers that try again what the store has refused try this again, too.
	ErrMemory error = memoryError{}
	// ErrMisconf refuses every write while the store accepts none.
	ErrMisconf = errors.New("the store cannot write")
	// ErrBackupRunning refuses a second backup at a time.
	ErrBackupRunning = errors.New("a backup is under way already")
	// ErrTakeover refuses tasks when another node leads, or may lead. Nothing has happened.
	ErrTakeover = errors.New("another node is taking over, try again")
	// ErrDeposed ends tasks whose batch was with the replicated log when the node ceased to lead.
	ErrDeposed = storage.ErrDeposed
	// ErrStopped ends tasks that are submitted after Stop.
	ErrStopped = errors.New("the broker is shutting down")
	// ErrUnblocked ends a wait on behalf of an operator.
	ErrUnblocked = errors.New("client unblocked via CLIENT UNBLOCK")
	// ErrClientGone ends the wait of a client that has disconnected. No reply is sent.
	ErrClientGone = errors.New("the client is gone")
	// ErrWouldBlock is no refusal: Apply returns it when the task has to wait. The engine parks
	// the task and calls the same Apply again when there may be something for it.
	ErrWouldBlock = errors.New("would block")
)

// amount formats a number with the noun that it counts: 1 message, 2 messages.
func amount[N ~int | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// BudgetsMax bounds the budgets of a message.
const BudgetsMax = credit.BudgetsMax

// checkKey returns ErrInvalid for an empty fairness key and ErrTooBig for one above Limits.Key.
func (c *core) checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: a fairness key has at least one byte", ErrInvalid)
	}
	if len(key) > c.cfg.Limits.Key {
		return fmt.Errorf("%w: fairness key of %d bytes, the limit is %d", ErrTooBig, len(key), c.cfg.Limits.Key)
	}
	return nil
}

// plain formats a number without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// memoryError is ErrMemory.
type memoryError struct{}

func (memoryError) Error() string { return "there is no memory for more" }

func (memoryError) Is(target error) bool { return target == ErrMisconf }

// Backups makes copies of the store. The engine calls Check in a turn and Take off the
// loop, one at a time.
type Backups interface {
	// Check returns what is wrong with the name of a new backup.
	Check(name string) error
	// Take copies the store as it is now, and returns the path of the copy once it is
	// durable.
	Take(name string) (path string, err error)
}

// durationMax bounds every duration a client gives: a century keeps all sums of
// times far from overflow.
const durationMax = queueset.MillisMax * time.Millisecond
