package scripting

import (
	"context"
	"errors"
	"fmt"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// budget is what one call may still use. It is the machine's context: gopher-lua
// asks Done before every instruction, which makes it a counter. Once a limit is
// hit Done answers with a closed channel for ever, so whatever catches the error
// fails again at its next instruction.
type budget struct {
	left     int64 // instructions until the next look at the clock
	stride   int64 // between two looks
	unlooked int64 // instructions after those

	memory    int64 // bytes charged so far
	memoryMax int64
	timeout   time.Duration
	start     time.Time
	looked    time.Duration // after start, when the clock was last read
	forgiven  time.Duration // that was not the script's, see late

	spent  error // the limit that was hit
	closed chan struct{}

	lanes   lanes
	lane    *lane         // nil: it has none
	turnAt  time.Duration // after start, when it began its turn
	waited  time.Duration // for a lane; start was moved on by as much
	yieldAt time.Duration // after start, when it is next called
}

var _ context.Context = (*budget)(nil)

const (
	// strideMax is how many instructions may pass without a look at the clock:
	// 1 µs of them, or so.
	strideMax = 64
	// strideLarge is from when on there are tables so large that going over what is left
	// of one, as '#' and next do, takes up to 20 µs.
	strideLarge = 8
	// stringLong is the length from which on single instructions can take long, as
	// comparing two strings does. From then on each is timed.
	stringLong = 8 << 10
)

func newBudget(c *Config) budget {
	closed := make(chan struct{})
	close(closed)
	return budget{closed: closed, memoryMax: int64(c.Memory), timeout: c.Timeout}
}

func (b *budget) reset(instructions int64) {
	b.stride, b.left, b.unlooked = strideMax, strideMax, instructions-strideMax
	b.memory, b.spent = 0, nil
	b.start, b.looked, b.forgiven = time.Now(), 0, 0
	b.turnAt, b.waited, b.yieldAt = 0, 0, 0
}

// turn is called at the end of a turn and returns at the start of the next. Waiting
// is not the script's time, but has the same limit, so that a call takes no more than
// twice of it whatever others do. It reports false when that is over.
func (b *budget) turn() bool {
	b.leaveLane()
	select {
	case b.lane = <-b.lanes:
	default:
		began := time.Now()
		end := time.NewTimer(b.timeout - b.waited)
		select {
		case b.lane = <-b.lanes:
		case <-end.C:
		}
		end.Stop()
		wait := time.Since(began)
		b.start = b.start.Add(wait)
		b.waited += wait
	}
	b.turnAt = b.looked
	return b.lane != nil
}

// leaveLane must follow each run.
func (b *budget) leaveLane() {
	if b.lane != nil {
		b.lanes <- b.lane
		b.lane = nil
	}
}

// giveWay lets others have the script's processor first. Time away is forgiven like
// other pauses, see late. After it the script runs as long undisturbed, so that it gets
// its half of a processor that somebody else never leaves.
func (b *budget) giveWay() {
	b.lane.giveWay()
	now := time.Since(b.start)
	away := now - b.looked
	b.forgive(away)
	b.looked = now
	b.turnAt += away
	b.yieldAt = now + max(yieldEvery, away)
}

var errCrowded = errors.New("the time limit is over, which has passed waiting for other scripts that take long")

var errInstructions = errors.New("the limit of instructions is used up")

// used is how many instructions and steps were taken, of what reset was given.
func (b *budget) used(instructions int64) int64 { return instructions - b.unlooked - max(b.left, 0) }

// Done is called before each instruction. nil is a channel that never delivers.
func (b *budget) Done() <-chan struct{} {
	if b.left--; b.left > 0 {
		return nil
	}
	return b.look()
}

// look is the slow part of Done.
func (b *budget) look() <-chan struct{} {
	switch {
	case b.spent != nil:
	case b.unlooked <= 0:
		b.spent = errInstructions
	case b.late():
		b.spent = fmt.Errorf("the time limit of %v is over", b.timeout)
	case b.lanes != nil && b.looked-b.turnAt > laneTurn && !b.turn():
		b.spent = errCrowded
	default:
		if b.lane != nil && b.looked >= b.yieldAt {
			b.giveWay()
		}
		// A function of the library may have run ahead: left is negative then.
		n := min(b.stride-b.left, b.unlooked)
		b.left += n
		b.unlooked -= n
		if b.left > 0 {
			return nil
		}
		b.spent = errInstructions
	}
	b.left = 0
	return b.closed
}

// late reads the clock. A stride takes microseconds: when it took much longer,
// the process was paused or its thread had other work, as happens on a busy
// machine, and that must not be held against the script, or three such pauses
// would open its breaker. Where strings are long, instructions are slow in earnest.
func (b *budget) late() bool {
	const strideTime = 500 * time.Microsecond
	now := time.Since(b.start)
	if pause := now - b.looked - strideTime; pause > 0 && b.stride > 1 {
		b.forgive(pause)
	}
	b.looked = now
	return now-b.forgiven > b.timeout
}

// forgive takes a pause off the script's time. Half the limit is the most that is
// forgiven, so that a script which finds slow instructions gains no more than that.
func (b *budget) forgive(pause time.Duration) {
	b.forgiven = min(b.forgiven+pause, b.timeout/2)
}

// steps takes n steps of a library function from the budget, and raises the
// error if that was the last of it.
func (b *budget) steps(l *lua.LState, n int64) {
	if b.left -= n; b.left > 0 {
		return
	}
	if b.look() != nil {
		l.RaiseError("%s", b.spent.Error())
	}
}

// charge takes n bytes from the budget before they are allocated.
func (b *budget) charge(l *lua.LState, n int) {
	b.memory += int64(n)
	if b.memory <= b.memoryMax && b.spent == nil {
		return
	}
	if b.spent == nil {
		b.spent = fmt.Errorf("the memory limit of %d bytes is used up", b.memoryMax)
	}
	b.memory = min(b.memory, b.memoryMax)
	b.left = 0
	l.RaiseError("%s", b.spent.Error())
}

// chargeString takes a string of n bytes from the budget, and the time to make
// it. One string may have an eighth of the memory: what gopher-lua does with
// single ones, such as naming them in an error, is out of the budget's sight.
func (b *budget) chargeString(l *lua.LState, n int) {
	if int64(n) > b.stringMax() && b.spent == nil {
		b.spent = fmt.Errorf("the memory limit allows strings of %d bytes, and not one of %d", b.stringMax(), n)
	}
	b.charge(l, n+n/8+costString) // blocks of memory come in sizes
	if n >= stringLong {
		b.long()
		b.steps(l, int64(n>>10))
	}
}

func (b *budget) stringMax() int64 { return b.memoryMax / 8 }

// long notes that there are long strings about.
func (b *budget) long() { b.narrow(1) }

// narrow has the clock read more often.
func (b *budget) narrow(stride int64) {
	if b.stride <= stride {
		return
	}
	b.unlooked += max(b.left-stride, 0)
	b.stride, b.left = stride, min(b.left, stride)
}

// Err is asked for after Done has delivered.
func (b *budget) Err() error { return b.spent }

// Deadline is not known to anybody who asks: nobody does.
func (b *budget) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value holds nothing.
func (b *budget) Value(any) any { return nil }
