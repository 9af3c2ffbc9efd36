// Package clock keeps the time of the engine, which never goes back: leases, delays and times to live keep their
// duration when the system clock is set back, while the broker runs (package loop) and over a restart or a change of
// leader. For the latter the store has the newest time (storage.StateNow), which the next start begins with.
// It is written
//
//   - with a batch that is written anyway, step after the last record, or with each batch where
//     another node may take over (config.Config.KeepTime);
//   - on its own if no batch has been written for a while and a lease, a delay or a time to live is
//     running: a second after the last record, or later where the first of them has more than a
//     minute to go, so that waiting for days costs some hundreds of records.
//
// So a lease that a restart finds is longer by at most the greater of a second and a share of
// what it had left. None of these writes is synced for its own sake.
//
// What is set by the calendar follows the system clock instead: recurring messages, refills of
// budgets, and messages for a time of day. While the system clock is behind, they wait for it.
package clock

import (
	"math"
	"time"

	"github.com/faisca/fila/storage"
)

const (
	// step is the time between two records in batches that are written anyway.
	step = 100 * time.Millisecond
	// own is the least time before a write of its own, and share the share of what remains
	// until the first timer.
	own   = time.Second
	share = 64
	// behindMin is the least difference by which the system clock counts as behind.
	behindMin = time.Second
)

// Keeper knows which time is written, and how far the system clock is behind the time of the engine. Times are in Unix
// nanoseconds.
type Keeper struct {
	kept   int64 // the newest record, in the store or in a batch
	behind int64 // 0: at most behindMin
}

// Recover sets the time that the store has.
func (k *Keeper) Recover(kept int64) { k.kept = kept }

// Kept returns the time that was written last.
func (k *Keeper) Kept() int64 { return k.kept }

// Own returns when the time is written on its own, if the first lease, delay or time to live ends at a time.
func (k *Keeper) Own(first int64) int64 { return k.kept + max(int64(own), (first-k.kept)/share) }

// Put writes the time with a batch.
func (k *Keeper) Put(now int64, b *storage.Batch) {
	k.kept = now
	b.Put(storage.State, storage.AppendStateKey(nil, storage.StateNow), storage.EncodeUint(uint64(now)))
}

// PutAlong writes the time with a batch that is written anyway, if the last record is old enough, or if always is set
// and it is another one.
func (k *Keeper) PutAlong(now int64, always bool, b *storage.Batch) {
	if now-k.kept >= int64(step) || always && k.kept != now {
		k.Put(now, b)
	}
}

// Turned says what has become of the system clock.
type Turned uint8

// As before, or behind by another duration than before, or no longer behind.
const (
	AsBefore Turned = iota
	SetBack
	CaughtUp
)

// SetBehind notes by how much the system clock is behind the time of the next turn.
func (k *Keeper) SetBehind(d time.Duration) Turned {
	before := time.Duration(k.behind)
	if k.behind = 0; d > behindMin {
		k.behind = int64(d)
	}
	now := k.Behind()
	switch {
	case now == 0 && before != 0:
		return CaughtUp
	case now > before+behindMin || now < before-behindMin:
		return SetBack
	default:
		return AsBefore
	}
}

// Behind returns by how much the system clock is behind; 0: at most a second.
func (k *Keeper) Behind() time.Duration { return time.Duration(k.behind) }

// Calendar returns the time by the system clock at a time of the engine.
func (k *Keeper) Calendar(now int64) int64 { return now - k.behind }

// OnCalendar returns the time of the engine at which the system clock reaches a time.
func (k *Keeper) OnCalendar(at int64) int64 {
	if at > math.MaxInt64-k.behind {
		return math.MaxInt64
	}
	return at + k.behind
}
