package scripting

import (
	"io"
	"time"

	"github.com/yuin/gopher-lua/ast"
)

// pacer has the work of loading a script done the way scripts run that take long: in a
// lane, in turns, and giving way to whoever else waits for the processor. It belongs to
// one load. Nil: nobody has to wait.
type pacer struct {
	lanes  lanes
	lane   *lane     // nil: it has none yet
	turnAt time.Time // when the turn began
	wayAt  time.Time // when it gives way next
}

func newPacer(l lanes) *pacer {
	now := time.Now()
	return &pacer{lanes: l, turnAt: now, wayAt: now.Add(yieldEvery)}
}

// pause is called where the work may rest, some microseconds after each other.
func (p *pacer) pause() {
	if p == nil || p.lanes == nil {
		return
	}
	now := time.Now()
	if now.Sub(p.turnAt) > laneTurn {
		p.leave()
		p.lane = <-p.lanes // whoever has it leaves it after a turn
		p.turnAt = time.Now()
		now = p.turnAt
	}
	if p.lane != nil && now.After(p.wayAt) {
		p.lane.giveWay()
		back := time.Now()
		away := back.Sub(now)
		p.turnAt = p.turnAt.Add(away)
		p.wayAt = back.Add(max(yieldEvery, away)) // its half of a processor that somebody else never leaves
	}
}

// stayAway lets others have the processor and the lane for some time.
func (p *pacer) stayAway(d time.Duration) {
	if p == nil || p.lanes == nil {
		return
	}
	p.leave()
	time.Sleep(d) //nolint:forbidigo // it has to be away
	p.turnAt = time.Time{}
	p.pause()
}

// leave must follow the last pause.
func (p *pacer) leave() {
	if p != nil && p.lane != nil {
		p.lanes <- p.lane
		p.lane = nil
	}
}

// paced is a source that its reader gets in small pieces, with a pause before each.
type paced struct {
	r io.Reader
	p *pacer
}

// pacedBytes take the parser some 10 µs.
const pacedBytes = 64

func (r paced) Read(b []byte) (int, error) {
	r.p.pause()
	return r.r.Read(b[:min(len(b), pacedBytes)])
}

// rest is a statement of no language. The compiler makes nothing of statements that it
// does not know, but asks the first one of a block for its line, so it pauses wherever
// there is `if true then <rest> end`, for which there is no instruction either.
type rest struct {
	ast.StmtBase

	p    *pacer
	away time.Duration
}

// Line is where the compiler asks.
func (s *rest) Line() int {
	if s.away > 0 {
		s.p.stayAway(s.away)
	} else {
		s.p.pause()
	}
	return s.StmtBase.Line()
}

// resting is the statement around it, for after so many steps.
func resting(line int, p *pacer, steps int) ast.Stmt {
	r := at(&rest{p: p}, line)
	if steps > effortLong {
		r.away = time.Duration(steps) * effortStep * effortAway
	}
	yes := at(&ast.TrueExpr{}, line)
	return at(&ast.IfStmt{Condition: yes, Then: []ast.Stmt{r}}, line)
}

// effort is what the compiler will have to do for what was rewritten so far, in steps
// of effortStep, of which comparing two names or constants is one. The compiler looks
// through lists, so there are sources for which it takes a thousand times as long as
// for others; between two rests it has to go through in one piece.
type effort struct {
	steps  int
	rested int // steps at the last rest
	paced  int // steps when the rewriting itself last paused
}

const (
	effortStep = 5 * time.Nanosecond

	effortNode     = 20
	effortBlock    = 120
	effortFunction = 1500 // gopher-lua makes room for 1024 instructions

	effortPause = 2000    // 10 µs
	effortRest  = 4000    // 20 µs
	effortMax   = 400_000 // 2 ms, without a rest

	// effortLong, 0.2 ms, is from when on a piece of work is followed by a rest of effortAway
	// times its length. A message's way through the broker has several steps, on several
	// goroutines, and each would wait for a piece to end if one followed the other; this
	// way, one message in a hundred waits for one.
	effortLong = 40_000
	effortAway = 100
)
