// Package redriving knows how far the redrive of a dead-letter queue is: what it may move and when, what it has moved, and
// what is shown of it. It knows no queues, messages or tasks; times are Unix nanoseconds and are handed in.
//
//	waiting ──NextAt──▶ reading ──page read──▶ moving ──More, the rate allows──▶ reading
//	   ▲                                         │ └────end, count, error──▶ over
//	   └──────────────rate exhausted─────────────┘
//
//	waiting  Page is not due
//	reading  the caller reads as many messages as Page says
//	moving   Begin, then Moved or a count for each message of the page while Allows
//	over     Over: there are no More, or the caller has ended it
package redriving

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/internal/refusals"
)

const (
	// pageMost is how many messages a page has, and so the most that one turn moves.
	pageMost = 256
	// ratedMost is the same with a rate.
	ratedMost = 32
	// LooksMax is how many messages a page looks at, at most, for those that a filter selects.
	LooksMax = 4096
	// catchUp is how far a delayed redrive may catch up with its rate. To keep the
	// rate in any second in spite of that, the redrive moves at pace of the rate.
	catchUp = int64(50 * time.Millisecond)
	pace    = 0.95
	rateMax = 1_000_000
)

// State is how far a redrive is that runs, or the last one.
type State struct {
	Count    int   // the most to move; 0: all
	Rate     int   // the most to move in any second; 0: no limit
	Filtered bool  // a filter selects what is moved
	Began    int64 // when it began

	Done, Skipped int    // messages that it has moved, and those that stay
	Taken         int    // of the skipped ones: another message has their unique id
	Looked        int    // messages looked at, whether the filter has selected them or not
	Cursor        []byte // start of the next page; nil: the beginning of the queue
	NextAt        int64  // when the rate allows the next message
	Over          bool   // the final state
	Err           error  // why it ended early
}

// New returns a redrive that begins now.
func New(count, rate int, filtered bool, now int64) State {
	return State{Count: count, Rate: rate, Filtered: filtered, Began: now, NextAt: now}
}

// CheckRate refuses a rate out of bounds.
func CheckRate(rate int) error {
	if rate < 0 || rate > rateMax {
		return fmt.Errorf("%w: RATE must be from 1 to %d", refusals.ErrInvalid, rateMax)
	}
	return nil
}

// Page returns how many messages the next page may find, and at how many it may look for them; due is false before
// NextAt.
func (p *State) Page(now int64) (most, look int, due bool) {
	if p.NextAt > now {
		return 0, 0, false
	}
	most = pageMost
	if p.Rate > 0 {
		most = min(ratedMost, p.allowed(now))
	}
	if p.Count > 0 {
		most = min(most, p.Count-p.Done)
	}
	if p.Filtered {
		return most, LooksMax, true
	}
	return most, most, true
}

// allowed returns how many messages the rate allows at a time, at least one. A page reads no
// more, so that what the filter passes over on the way to them is not read again.
func (p *State) allowed(now int64) int { return int((now-max(p.NextAt, now-catchUp))/p.pause()) + 1 }

// pause returns the time between two messages in nanoseconds, at least 1.
func (p *State) pause() int64 {
	return max(int64(float64(time.Second)/(pace*float64(p.Rate))), 1)
}

// Begin begins to move the messages of a page, which has looked at so many.
func (p *State) Begin(now int64, looked int) {
	p.NextAt = max(p.NextAt, now-catchUp)
	p.Looked += looked
}

// Allows reports whether the rate allows the next message now. It does for all of a page, unless the clock has gone back.
func (p *State) Allows(now int64) bool { return p.NextAt <= now }

// Moved counts a message that is moved.
func (p *State) Moved() {
	p.Done++
	if p.Rate > 0 {
		p.NextAt += p.pause()
	}
}

// More reports whether something is left to move from a cursor on, which is nil at the end of the queue.
func (p *State) More(cursor []byte) bool {
	p.Cursor = cursor
	return cursor != nil && (p.Count == 0 || p.Done < p.Count)
}

// Info describes the running or the last redrive of a queue.
type Info struct {
	Running        bool
	Moved, Skipped int64
	Taken, Looked  int64  // of the skipped ones, those whose unique id another message has; messages looked at so far
	To             string // "": the queue in which each message died
	Rate           int    // messages a second; 0: no limit
	StartedAt      time.Time
	Error          *string  // only messages whose error is like this, cut; nil: any
	From           string   // only messages that died in this queue, cut; "": any
	Causes         []string // only messages with one of these causes, the first ten, cut; nil: any
	Search         bool     // only messages that meet further conditions of the request, which are not shown
}

// Info describes the redrive, except for its conditions.
func (p *State) Info() Info {
	return Info{
		Running: !p.Over, Moved: int64(p.Done), Skipped: int64(p.Skipped), Taken: int64(p.Taken), Looked: int64(p.Looked),
		Rate: p.Rate, StartedAt: time.Unix(0, p.Began),
	}
}
