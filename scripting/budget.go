package scripting

import (
	"context"
	"errors"
	"fmt"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/hook"
)

// budget holds the remaining resources of one call. It is the machine's context:
// gopher-lua calls Done before every instruction, which makes Done the instruction
// counter. Once a limit is exceeded, Done returns a closed channel for the rest of the
// call, so a script that catches the error fails again at its next instruction.
//
// States of a call with regard to slots (slot.go):
//
//	quick ──slotTurn has passed──▶ waiting ──a slot is free──▶ in a turn ──slotTurn──▶ waiting
//	                                  └──the time limit has passed──▶ failed (errSlotWait)
//
// Most calls end while they are quick.
//
// The clock is read once per stride of instructions, and after every instruction where
// single ones can be slow.
type budget struct {
	limit    int64 // instructions of the call
	left     int64 // instructions until the next check
	stride   int64 // instructions between two checks
	reserved int64 // instructions beyond left

	memory    int64 // bytes charged so far
	memoryMax int64
	timeout   time.Duration
	start     time.Time
	checkedAt time.Duration // time of the last check, after start
	forgiven  time.Duration // pauses not charged to the script, see overTime

	spent  error // the exceeded limit; nil: none
	closed chan struct{}

	slots   slots
	slot    *slot         // nil: no slot held
	turnAt  time.Duration // start of the current turn, after start
	waited  time.Duration // time spent waiting for slots; start is advanced by it
	yieldAt time.Duration // time of the next yield, after start
}

var _ context.Context = (*budget)(nil)

const (
	// strideMax is the largest number of instructions between two checks, about 1 µs.
	strideMax = 64
	// strideLarge is the stride once a table is so large that '#' or next take up to 20
	// µs.
	strideLarge = 8
	// stringLong is the length in bytes from which single instructions, such as comparing
	// strings, are slow. From then on each instruction is timed.
	stringLong = 8 << 10
)

func newBudget() budget {
	closed := make(chan struct{})
	close(closed)
	return budget{closed: closed}
}

// reset starts a call within bounds, none of which is 0.
func (b *budget) reset(within *hook.Bounds) {
	b.timeout, b.memoryMax = within.Timeout, int64(within.Memory)
	b.restart(instructionsIn(within.Timeout))
}

// restart starts a call with so many instructions, and the bounds of the one before.
func (b *budget) restart(instructions int64) {
	b.limit = instructions
	b.stride, b.left, b.reserved = strideMax, strideMax, instructions-strideMax
	b.memory, b.spent = 0, nil
	b.start, b.checkedAt, b.forgiven = time.Now(), 0, 0
	b.turnAt, b.waited, b.yieldAt = 0, 0, 0
}

// nextTurn releases the slot and acquires one again. Waiting does not count as the
// script's time but has the same limit, so a call takes at most twice its time limit. It
// returns false if that wait was exceeded.
func (b *budget) nextTurn() bool {
	b.releaseSlot()
	select {
	case b.slot = <-b.slots:
	default:
		began := time.Now()
		end := time.NewTimer(b.timeout - b.waited)
		select {
		case b.slot = <-b.slots:
		case <-end.C:
		}
		end.Stop()
		wait := time.Since(began)
		b.start = b.start.Add(wait)
		b.waited += wait
	}
	b.turnAt = b.checkedAt
	return b.slot != nil
}

// releaseSlot must follow each run.
func (b *budget) releaseSlot() {
	if b.slot != nil {
		b.slots <- b.slot
		b.slot = nil
	}
}

// yield lets other threads and goroutines run. The time away is forgiven, see overTime.
// The script then runs undisturbed for at least as long, so it gets half of a contended
// processor.
func (b *budget) yield() {
	b.slot.yield()
	now := time.Since(b.start)
	away := now - b.checkedAt
	b.forgive(away)
	b.checkedAt = now
	b.turnAt += away
	b.yieldAt = now + max(yieldEvery, away)
}

var errSlotWait = errors.New("the time limit passed while waiting for other slow scripts")

var errInstructions = errors.New("the instruction limit is exceeded")

// used returns how many instructions the call has consumed.
func (b *budget) used() int64 { return b.limit - b.reserved - max(b.left, 0) }

// Done implements context.Context. A nil channel means that the script may go on.
func (b *budget) Done() <-chan struct{} {
	if b.left--; b.left > 0 {
		return nil
	}
	return b.check()
}

// check is the slow path of Done: it reads the clock, yields, and refills left.
func (b *budget) check() <-chan struct{} {
	switch {
	case b.spent != nil:
	case b.reserved <= 0:
		b.spent = errInstructions
	case b.overTime():
		b.spent = fmt.Errorf("the time limit of %v is exceeded", b.timeout)
	case b.slots != nil && b.checkedAt-b.turnAt > slotTurn && !b.nextTurn():
		b.spent = errSlotWait
	default:
		if b.slot != nil && b.checkedAt >= b.yieldAt {
			b.yield()
		}
		// left is negative if a library function took more steps than were left.
		n := min(b.stride-b.left, b.reserved)
		b.left += n
		b.reserved -= n
		if b.left > 0 {
			return nil
		}
		b.spent = errInstructions
	}
	b.left = 0
	return b.closed
}

// overTime reads the clock and reports whether the time limit is exceeded. A stride takes
// microseconds; if it took much longer, the process or thread was suspended. That time is
// forgiven, as a few such pauses in a row would open the breaker. With long strings
// instructions can really be slow, so nothing is forgiven then.
func (b *budget) overTime() bool {
	const strideTime = 500 * time.Microsecond
	now := time.Since(b.start)
	if pause := now - b.checkedAt - strideTime; pause > 0 && b.stride > 1 {
		b.forgive(pause)
	}
	b.checkedAt = now
	return now-b.forgiven > b.timeout
}

// forgive deducts a pause from the script's time. At most half of the limit is forgiven,
// which bounds what a script can gain from undetected slow instructions.
func (b *budget) forgive(pause time.Duration) {
	b.forgiven = min(b.forgiven+pause, b.timeout/2)
}

// steps charges n steps of a library function and raises an error if a limit is exceeded.
func (b *budget) steps(l *lua.LState, n int64) {
	if b.left -= n; b.left > 0 {
		return
	}
	if b.check() != nil {
		l.RaiseError("%s", b.spent.Error())
	}
}

// charge charges n bytes before they are allocated and raises an error if the limit is
// exceeded.
func (b *budget) charge(l *lua.LState, n int) {
	b.memory += int64(n)
	if b.memory <= b.memoryMax && b.spent == nil {
		return
	}
	if b.spent == nil {
		b.spent = fmt.Errorf("the memory limit of %d bytes is exceeded", b.memoryMax)
	}
	b.memory = min(b.memory, b.memoryMax)
	b.left = 0
	l.RaiseError("%s", b.spent.Error())
}

// chargeString charges a string of n bytes and the time to build it. One string may use
// an eighth of the memory limit: gopher-lua copies single strings outside of the budget,
// for example into error texts.
func (b *budget) chargeString(l *lua.LState, n int) {
	if int64(n) > b.stringMax() && b.spent == nil {
		b.spent = fmt.Errorf("the memory limit allows strings of %d bytes, and not one of %d", b.stringMax(), n)
	}
	b.charge(l, n+n/8+costString) // allocation size classes
	if n >= stringLong {
		b.noteLongString()
		b.steps(l, int64(n>>10))
	}
}

func (b *budget) stringMax() int64 { return b.memoryMax / 8 }

// noteLongString shortens the stride because a long string exists.
func (b *budget) noteLongString() { b.shortenStride(1) }

// shortenStride makes checks more frequent.
func (b *budget) shortenStride(stride int64) {
	if b.stride <= stride {
		return
	}
	b.reserved += max(b.left-stride, 0)
	b.stride, b.left = stride, min(b.left, stride)
}

// Err returns the exceeded limit, after Done has delivered.
func (b *budget) Err() error { return b.spent }

// Deadline reports none: Done enforces the time limit.
func (b *budget) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value returns nil.
func (b *budget) Value(any) any { return nil }
