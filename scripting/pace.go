package scripting

import (
	"io"
	"time"

	"github.com/yuin/gopher-lua/ast"
)

// pacer makes loading a script yield like a slow script: in a slot, in turns, and
// yielding the processor. It belongs to one load. A nil pacer never yields.
type pacer struct {
	slots   slots
	slot    *slot     // nil: no slot acquired yet
	turnAt  time.Time // start of the current turn
	yieldAt time.Time // time of the next yield
}

func newPacer(l slots) *pacer {
	now := time.Now()
	return &pacer{slots: l, turnAt: now, yieldAt: now.Add(yieldEvery)}
}

// pause yields if the turn or the interval is over. Loading calls it every few
// microseconds of work.
func (p *pacer) pause() {
	if p == nil || p.slots == nil {
		return
	}
	now := time.Now()
	if now.Sub(p.turnAt) > slotTurn {
		p.leave()
		p.slot = <-p.slots // at most one turn per competitor
		p.turnAt = time.Now()
		now = p.turnAt
	}
	if p.slot != nil && now.After(p.yieldAt) {
		p.slot.yield()
		back := time.Now()
		away := back.Sub(now)
		p.turnAt = p.turnAt.Add(away)
		p.yieldAt = back.Add(max(yieldEvery, away)) // at least half of a contended processor
	}
}

// backOff releases processor and slot for a duration.
func (p *pacer) backOff(d time.Duration) {
	if p == nil || p.slots == nil {
		return
	}
	p.leave()
	time.Sleep(d) //nolint:forbidigo // the pause is the purpose
	p.turnAt = time.Time{}
	p.pause()
}

// leave releases the slot. It must follow the last pause.
func (p *pacer) leave() {
	if p != nil && p.slot != nil {
		p.slots <- p.slot
		p.slot = nil
	}
}

// paced is a reader of a source in small pieces, with a pause before each.
type paced struct {
	r io.Reader
	p *pacer
}

// pacedBytes is the size of a piece, some 10 µs of parsing.
const pacedBytes = 64

func (r paced) Read(b []byte) (int, error) {
	r.p.pause()
	return r.r.Read(b[:min(len(b), pacedBytes)])
}

// pauseStmt is a statement node that makes gopher-lua's compiler pause. The compiler
// ignores statements of unknown types but asks the first one of a block for its line, so
// `if true then <pauseStmt> end` calls Line during compilation and emits no instruction.
type rest struct {
	ast.StmtBase

	p    *pacer
	away time.Duration
}

// Line pauses and returns the line.
func (s *rest) Line() int {
	if s.away > 0 {
		s.p.backOff(s.away)
	} else {
		s.p.pause()
	}
	return s.StmtBase.Line()
}

// pausePoint returns the statement around a pauseStmt that follows so many steps of
// compilation.
func pausePoint(line int, p *pacer, steps int) ast.Stmt {
	r := at(&rest{p: p}, line)
	if steps > effortLong {
		r.away = time.Duration(steps) * effortStep * effortAway
	}
	yes := at(&ast.TrueExpr{}, line)
	return at(&ast.IfStmt{Condition: yes, Then: []ast.Stmt{r}}, line)
}

// effort estimates the compiler's work for the rewritten statements in steps of
// effortStep, the cost of comparing two names or constants. The compiler searches lists
// linearly, so some sources take a thousand times as long as others of the same size. The
// work between two pause points is not interruptible.
type effort struct {
	steps  int
	rested int // steps at the last pause point
	paced  int // steps at the last pause of the rewriting
}

const (
	effortStep = 5 * time.Nanosecond

	effortNode     = 20
	effortBlock    = 120
	effortFunction = 1500 // gopher-lua allocates 1024 instructions

	effortPause = 2000    // 10 µs
	effortRest  = 4000    // 20 µs
	effortMax   = 400_000 // 2 ms, the maximum without a pause point

	// effortLong (0.2 ms) is the length of uninterrupted work after which the load backs
	// off for effortAway times as long. A message passes several goroutines, each of
	// which could wait for such a piece of work; with the back-off, about one message in
	// a hundred waits for one.
	effortLong = 40_000
	effortAway = 100
)
