// Package queueset is the table of the numeric settings of a queue. Everything that
// handles such a setting walks the table and names none: the fields of the queue's record
// (storage), the defaults, the checks, the plan of changes and what an automatic
// dead-letter queue inherits (engine), the arguments of FILA.QUEUE CREATE and ALTER, the
// fields of FILA.QUEUE INFO and the definition of FILA.QUEUE APPLY (commands), and the
// check of the files that `fila queues apply` reads (cli).
//
// A new setting is a constant and a row of Rows. Its use, by
// queue.set.Values[queueset.X], is the only place that knows what it means.
// A test compares the rows with storage/fila.proto and docs/how-to/queues.md, the two documents
// that list the settings.
package queueset

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// Setting is the index of a setting in Values and Rows. It exists in memory only: records
// name a setting by Row.Record, everything else by Row.Name or Row.Token.
type Setting uint8

// The settings. Their order is that of plans and of the errors about files.
const (
	Visibility Setting = iota
	MaxAttempts
	Backoff
	MaxBackoff
	BackoffJitter
	TTL
	MaxDepth
	KeyMaxDepth
	DedupWindow
	LuaTimeout    // of one call of a hook; 0: lua.timeout_ms
	LuaMemory     // that one call of a hook may allocate; 0: lua.memory_bytes
	BreakerErrors // consecutive errors that open the breaker of a hook; 0: lua.breaker_errors
	Signals       // 1: the messages are recorded as signals
	Ordered       // 1: of each fairness key at most one message is out at a time
	ResultTTL     // how long the results of acks are kept; 0: not at all
	KeepDone      // how long what is known of acked messages is kept; 0: not at all
	Batch         // a fairness key delivers when it has so many ready messages; 0: at once
	BatchWait     // or when its oldest has waited so long

	count
)

// Values are the settings of a queue, each in its unit. A limit of 0 is none; a setting that has
// Row.Configured is 0 while the configuration decides.
type Values [count]uint64

// Given are the settings that a request names, and their values. The others stay as they
// are, or get their defaults.
type Given map[Setting]uint64

// Unit is what a setting counts, as the arguments of commands and their errors name it.
type Unit string

// The units.
const (
	Millis  Unit = "ms"
	Bytes   Unit = "bytes"
	Count   Unit = "n"
	Percent Unit = "percent"
	Switch  Unit = "switch" // 1 or 0: ON or OFF as an argument, true or false in JSON and TOML
)

// MillisMax bounds every duration that a client gives: a century keeps all sums of times
// far from overflow.
const MillisMax = 100 * 365 * 24 * 3600 * 1000

// Row describes a setting.
type Row struct {
	Name     string // in FILA.QUEUE INFO, plans, JSON and TOML
	Token    string // of the argument; in lower case, the argument's name
	Doc      string // what it is, as the help of the command line says it: the value is in backquotes
	Unit     Unit
	Min, Max int64
	// Configured says that 0 is allowed as well, and stands for the setting of the configuration:
	// a change of that applies to existing queues.
	Configured bool
	Default    uint64 // unless the configuration has one, see engine.Config
	Record     int32  // field number in the record; never used again
	Inherited  bool   // an automatic dead-letter queue gets the value of its parent
}

// Rows returns the table.
func Rows() [count]Row {
	return [count]Row{
		Visibility:    {Name: "visibility_ms", Token: "VISIBILITY", Doc: "`duration` of a lease for which FILA.LEASE gives none", Unit: Millis, Min: 1, Max: MillisMax, Record: 2, Inherited: true},
		MaxAttempts:   {Name: "max_attempts", Token: "MAXATTEMPTS", Doc: "a message is dead after `n` failures; 0: never", Unit: Count, Max: math.MaxUint32, Record: 7},
		Backoff:       {Name: "backoff_ms", Token: "BACKOFF", Doc: "`duration` of the delay before the first retry, which doubles with each failure", Unit: Millis, Max: MillisMax, Record: 3, Inherited: true},
		MaxBackoff:    {Name: "max_backoff_ms", Token: "MAXBACKOFF", Doc: "`duration` of the longest delay before a retry", Unit: Millis, Max: MillisMax, Record: 4, Inherited: true},
		BackoffJitter: {Name: "backoff_jitter_percent", Token: "BACKOFFJITTER", Doc: "`percent` of the delay before a retry that is random", Unit: Percent, Max: 100, Record: 17, Inherited: true},
		TTL:           {Name: "ttl_ms", Token: "TTL", Doc: "`duration` after which a message that is not done is dead; 0: never", Unit: Millis, Max: MillisMax, Record: 5},
		MaxDepth:      {Name: "max_depth", Token: "MAXDEPTH", Doc: "the queue refuses messages beyond `n`; 0: no limit", Unit: Count, Max: math.MaxInt64, Record: 8},
		KeyMaxDepth:   {Name: "key_max_depth", Token: "KEYMAXDEPTH", Doc: "the queue refuses messages of a fairness key beyond `n`; 0: no limit", Unit: Count, Max: math.MaxInt64, Record: 9},
		DedupWindow:   {Name: "dedup_window_ms", Token: "DEDUPWINDOW", Doc: "`duration` for which deduplication ids are remembered; 0: not at all", Unit: Millis, Max: MillisMax, Record: 6, Inherited: true},
		LuaTimeout:    {Name: "lua_timeout_ms", Token: "LUATIMEOUT", Doc: "`duration` of the longest call of a hook; 0: lua.timeout_ms of the configuration", Unit: Millis, Min: 1, Max: 60_000, Configured: true, Record: 18},
		LuaMemory:     {Name: "lua_memory_bytes", Token: "LUAMEMORY", Doc: "`bytes` that a call of a hook may allocate; 0: lua.memory_bytes of the configuration", Unit: Bytes, Min: 256 << 10, Max: 1 << 30, Configured: true, Record: 19},
		BreakerErrors: {Name: "breaker_errors", Token: "BREAKERERRORS", Doc: "a hook is left out for a while after `n` failures in a row; 0: lua.breaker_errors of the configuration", Unit: Count, Min: 1, Max: 1_000_000, Configured: true, Record: 20},
		Signals:       {Name: "signals", Token: "SIGNALS", Doc: "`on|off`: record what becomes of messages as signals, for hooks", Unit: Switch, Max: 1, Record: 21},
		Ordered:       {Name: "ordered", Token: "ORDERED", Doc: "`on|off`: at most one message of each fairness key is leased or retrying at a time", Unit: Switch, Max: 1, Record: 22},
		ResultTTL:     {Name: "result_ttl_ms", Token: "RESULTTTL", Doc: "`duration` for which results of acks are kept; 0: not at all", Unit: Millis, Max: MillisMax, Default: 3_600_000, Record: 23, Inherited: true},
		KeepDone:      {Name: "keep_done_ms", Token: "KEEPDONE", Doc: "`duration` for which it is known what has become of acked messages; 0: not at all", Unit: Millis, Max: MillisMax, Record: 24},
		Batch:         {Name: "batch", Token: "BATCH", Doc: "a fairness key delivers when it has `n` ready messages; 0: at once", Unit: Count, Max: 1_000_000, Record: 25},
		BatchWait:     {Name: "batch_wait_ms", Token: "BATCHWAIT", Doc: "`duration` after which a fairness key delivers with fewer than batch", Unit: Millis, Max: MillisMax, Record: 26},
	}
}

// Allows reports whether the setting may have a value.
func (r *Row) Allows(n uint64) bool {
	return n == 0 && r.Configured || n >= uint64(r.Min) && n <= uint64(r.Max)
}

// Least returns the lowest value that the setting may have.
func (r *Row) Least() int64 {
	if r.Configured {
		return 0
	}
	return r.Min
}

// Range says in words what Allows accepts.
func (r *Row) Range() string {
	words := fmt.Sprintf("from %d to %d", r.Min, r.Max)
	if r.Configured {
		return "0 or " + words
	}
	return words
}

// All iterates over the table in the order of the settings.
func All() iter.Seq2[Setting, Row] {
	return func(yield func(Setting, Row) bool) {
		for i, row := range Rows() {
			if !yield(Setting(i), row) {
				return
			}
		}
	}
}

// FirstRecord is the highest field number of the queue record in the first release.
const FirstRecord = 16

// Added says that the setting is younger than the first release. The arguments and the
// fields of INFO grow at their ends only, as clients may read both by position: such
// settings come after the others there.
func (r *Row) Added() bool { return r.Record > FirstRecord }

// Omitted says that records older than the setting have its default. The record then holds the
// value plus 1, and nothing for the default.
func (r *Row) Omitted() bool { return r.Added() && r.Default != 0 }

// ToRecord returns what the record of a queue holds for a value of a setting that is Omitted.
func (r *Row) ToRecord(v uint64) uint64 {
	if v == r.Default {
		return 0
	}
	return v + 1
}

// FromRecord is the reverse of ToRecord.
func (r *Row) FromRecord(n uint64) uint64 {
	if n == 0 {
		return r.Default
	}
	return n - 1
}

// ByRecord returns the settings in the order of their numbers in the record.
func ByRecord() []Setting {
	rows := Rows()
	order := make([]Setting, 0, len(rows))
	for s := range All() {
		order = append(order, s)
	}
	slices.SortFunc(order, func(a, b Setting) int { return int(rows[a].Record - rows[b].Record) })
	return order
}

// Duration returns a setting in milliseconds as a duration.
func (v *Values) Duration(s Setting) time.Duration {
	return time.Duration(v[s]) * time.Millisecond
}

// SetDuration sets a setting in milliseconds, to a duration that is not negative.
func (v *Values) SetDuration(s Setting, d time.Duration) {
	v[s] = uint64(d.Milliseconds())
}

// Inherited returns the settings of a dead-letter queue that is created automatically for
// a queue with the settings v.
func (v *Values) Inherited() Values {
	var dead Values
	for s, row := range All() {
		if row.Inherited {
			dead[s] = v[s]
		}
	}
	return dead
}
