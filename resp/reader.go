package resp

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// This file is the reader's memory: where bytes come in, how they are kept
// while a command is incomplete, and how a batch is handed out. What the bytes
// mean is in parse.go.
//
// Bytes arrive in a scratch buffer that is borrowed while there is something to
// read. Arguments are noted as spans of it, and all complete commands leave in
// one batch: one copy of the bytes, one slice of arguments, whatever their
// number. A command that does not fit, or that is still incomplete when the
// connection falls quiet, moves into memory of its own (assembly), so the
// buffer can be given back and a long argument is read straight to its place.

const (
	scratchBytes      = 72 << 10 // holds the longest inline command with room to spare
	scratchSmallBytes = 1 << 10  // what a source that must hold a buffer while it waits holds
	compactBytes      = 16 << 10 // less space than this behind the bytes: move them to the front
	inlineBytesMax    = 64 << 10
	chunkBytesMin     = 512
	chunkBytesMax     = 32 << 10
	bulkOwnBytes      = 16 << 10 // longer arguments of an assembly get memory of their own
	bulkFirstBytes    = 64 << 10 // first memory for a long argument; then four times what has arrived
	scratchKeepCmds   = 64
	restKeepBytes     = 256
)

// source is where a reader's bytes come from.
type source interface {
	// fill waits for bytes, reads once into r.room and tells how many. It
	// should wait with r parked, so that waiting needs no memory.
	fill(r *reader) (int, error)
}

// span is one argument in a scratch buffer.
type span struct{ at, n int32 }

// scratch is what a reader needs only while it has bytes at hand.
type scratch struct {
	buf    []byte
	spans  []span    // arguments of complete commands, then those of the one being read
	counts []int32   // arguments of each complete command
	cmds   []Command // the batch handed out last
}

// pools are what the connections of one server lend each other.
type pools struct {
	scratch sync.Pool // *scratch of scratchBytes
	lists   sync.Pool // *replyList
	output  sync.Pool // *outputBuffer

	received    atomic.Int64 // bytes of memory in assemblies, until their commands were handled
	receivedMax int64        // 0: no bound
}

func (p *pools) getScratch() *scratch {
	if s, ok := p.scratch.Get().(*scratch); ok {
		return s
	}
	return &scratch{buf: make([]byte, scratchBytes)}
}

// assembly is a command that is put together outside the scratch buffer.
type assembly struct {
	args      [][]byte
	cur       []byte // the argument being received
	chunk     []byte // free memory for short arguments
	chunkSize int    // what it was made with
	bytes     int64  // of memory in all of these
}

// reader frames commands. It is bounded by its limits, not recursive, and takes
// time linear in the bytes however they are cut into reads.
//
// Always true: base <= start <= pos <= end; buf[base:start] are the complete
// commands of the next batch, buf[start:pos] is the parsed part of the command
// being read. Parked (s == nil) there are no complete commands, pos is base, and
// buf[pos:end] is in rest.
type reader struct {
	src           source
	pools         *pools
	limits        Limits
	authenticated bool // false: Redis' limits before authentication, one command per batch

	s                     *scratch
	base, start, pos, end int
	scanned               int    // bytes behind pos known to hold no line feed
	rest                  []byte // unparsed bytes while parked

	first int       // index in spans of the first argument of the command being read
	need  int       // its missing arguments; 0: between commands
	bulk  int       // length of the argument being read; -1: its length comes next
	size  int       // bytes of its arguments so far
	big   *assembly // it, when it is assembled outside the buffer
	held  int64     // of pools.received, what is ours

	fatal error // what ends the connection once the batch before it is handed out
	late  error // the source's error that came along with bytes
}

func newReader(src source, p *pools, limits Limits) *reader {
	return &reader{src: src, pools: p, limits: limits, bulk: -1}
}

// next returns the complete commands at hand, at most limit (at least 1); it
// waits for bytes if there are none. The slice is valid until the next call. An
// error comes alone, after everything before it; only a deadline's error can be
// followed by another call.
func (r *reader) next(limit int) ([]Command, error) {
	r.recycle()
	if !r.authenticated {
		limit = 1
	}
	for {
		if r.fatal != nil {
			return nil, r.fatal
		}
		err := errMore
		if r.s != nil {
			err = r.parse(limit)
		}
		if err != nil && !errors.Is(err, errMore) {
			r.fatal = err
		}
		r.account()
		if r.big != nil && r.need == 0 {
			return r.takeBig(), nil
		}
		if r.s != nil && len(r.s.counts) > 0 {
			return r.take(), nil
		}
		if r.fatal != nil {
			continue
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// recycle forgets the last batch, so that the scratch buffer pins nothing.
func (r *reader) recycle() {
	if r.big == nil && r.held > 0 {
		r.pools.received.Add(-r.held)
		r.held = 0
	}
	if r.s == nil {
		return
	}
	clear(r.s.cmds)
	r.s.cmds = r.s.cmds[:0]
}

// receivedFree is what a connection may hold of a long command however much the
// others do: what is short always gets through.
const receivedFree = 256 << 10

// account notes how much memory the long command being received takes. All of them
// together are bounded, or a thousand clients that each send the longest command
// there may be would take all there is. Over the bound it is the one that wants more
// that ends: were it to wait, all might wait for each other.
func (r *reader) account() {
	if r.big == nil || r.big.bytes <= r.held {
		return
	}
	more := r.big.bytes - r.held
	r.held += more
	if total := r.pools.received.Add(more); r.pools.receivedMax > 0 && total > r.pools.receivedMax && r.held > receivedFree && r.fatal == nil {
		r.fatal = errInputMemory
		r.need, r.big = 0, nil
	}
}

// take hands out the complete commands.
func (r *reader) take() []Command {
	s := r.s
	raw := append([]byte(nil), s.buf[r.base:r.start]...)
	args := make([][]byte, r.first)
	base := int32(r.base)
	for i, sp := range s.spans[:r.first] {
		at := sp.at - base
		args[i] = raw[at : at+sp.n : at+sp.n]
	}
	for _, n := range s.counts {
		s.cmds = append(s.cmds, Command{Args: args[:n:n]})
		args = args[n:]
	}
	s.counts = s.counts[:0]
	s.spans = s.spans[:copy(s.spans, s.spans[r.first:])]
	r.first = 0
	r.base = r.start
	return s.cmds
}

// takeBig hands out the command that was assembled, alone.
func (r *reader) takeBig() []Command {
	if r.s == nil {
		r.attach(r.pools.getScratch())
	}
	r.s.cmds = append(r.s.cmds, Command{Args: r.big.args})
	r.big = nil
	return r.s.cmds
}

// fill gets bytes from the source. There are no complete commands then.
func (r *reader) fill() error {
	if r.late != nil {
		return r.late
	}
	for range 100 {
		n, err := r.src.fill(r)
		if n > 0 {
			r.late = err
			r.arrived(n)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return errProgress
}

// direct tells whether the next bytes belong to a long argument and can be read
// to their place at once.
func (r *reader) direct() bool {
	return r.big != nil && r.bulk > len(r.big.cur) && r.pos == r.end
}

// room returns the space the next bytes go to. Who reads calls it, reads once,
// and reports by fill's result. A reader without a buffer borrows one.
func (r *reader) room(borrow func() *scratch) []byte {
	if !r.direct() {
		if r.s == nil {
			r.attach(borrow())
		}
		if r.base == r.end || len(r.s.buf)-r.end < compactBytes {
			r.shift()
		}
		if r.end == len(r.s.buf) {
			r.moveOut()
		}
	}
	if r.direct() {
		return r.big.space(r.bulk, 0)
	}
	return r.s.buf[r.end:]
}

// arrived accounts for n bytes read into what room returned.
func (r *reader) arrived(n int) {
	if r.direct() {
		r.big.cur = r.big.cur[:len(r.big.cur)+n]
		if r.s == nil && r.bulk == len(r.big.cur) {
			r.attach(r.pools.getScratch())
		}
		return
	}
	r.end += n
}

// shift moves the bytes to the front of the buffer.
func (r *reader) shift() {
	if r.base == 0 {
		return
	}
	by := r.base
	copy(r.s.buf, r.s.buf[by:r.end])
	r.base, r.start, r.pos, r.end = 0, r.start-by, r.pos-by, r.end-by
	for i := range r.s.spans {
		r.s.spans[i].at -= int32(by)
	}
}

// moveOut makes space in a buffer that is full of one incomplete command: by
// assembling it, or by a bigger buffer for a line, which must be whole.
func (r *reader) moveOut() {
	if r.need > 0 && r.big == nil {
		r.assemble()
		r.shift()
		return
	}
	if len(r.s.buf) < scratchBytes {
		r.park()
		r.attach(r.pools.getScratch())
	}
}

// park gives the buffer back. What is incomplete is kept in memory of its own
// size.
func (r *reader) park() {
	if r.s == nil {
		return
	}
	if r.need > 0 && r.big == nil {
		r.assemble()
	}
	if n := r.end - r.pos; cap(r.rest) > restKeepBytes && n < cap(r.rest)/4 {
		r.rest = nil
	}
	r.rest = append(r.rest[:0], r.s.buf[r.pos:r.end]...)
	s := r.s
	r.s = nil
	r.base, r.start, r.pos, r.end = 0, 0, 0, len(r.rest)
	s.spans = s.spans[:0]
	if len(s.buf) == scratchBytes {
		r.pools.scratch.Put(s)
	} else if cap(s.cmds) > scratchKeepCmds {
		s.cmds, s.spans, s.counts = nil, nil, nil
	}
}

// attach takes s into use.
func (r *reader) attach(s *scratch) {
	r.s = s
	if len(r.rest) > len(s.buf) {
		r.s = r.pools.getScratch()
	}
	r.end = copy(r.s.buf, r.rest)
	r.rest = r.rest[:0]
}

// assemble moves the command being read out of the buffer.
func (r *reader) assemble() {
	a := &assembly{}
	spans := r.s.spans[r.first:]
	a.args = make([][]byte, 0, min(r.need+len(spans), max(16, 4*len(spans))))
	for _, sp := range spans {
		a.begin(int(sp.n))
		a.cur = append(a.cur, r.s.buf[sp.at:sp.at+sp.n]...)
		a.finish()
	}
	r.s.spans = r.s.spans[:r.first]
	r.big = a
	if r.bulk >= 0 {
		a.begin(r.bulk)
		r.receive()
	}
	r.base, r.start = r.pos, r.pos
}

// receive moves bytes of the current argument from the buffer to the assembly.
func (r *reader) receive() {
	a := r.big
	for r.pos < r.end && len(a.cur) < r.bulk {
		space := a.space(r.bulk, r.end-r.pos)
		n := copy(space, r.s.buf[r.pos:r.end])
		a.cur = a.cur[:len(a.cur)+n]
		r.pos += n
	}
	r.base, r.start = r.pos, r.pos
}

// begin starts an argument of n bytes. Short ones share memory.
func (a *assembly) begin(n int) {
	if n == 0 || n > bulkOwnBytes {
		a.cur = []byte{}
		return
	}
	if len(a.chunk) < n {
		a.chunkSize = min(max(chunkBytesMin, 2*a.chunkSize, 2*n), chunkBytesMax)
		a.chunk = make([]byte, a.chunkSize)
		a.bytes += int64(a.chunkSize)
	}
	a.cur = a.chunk[:0:n]
	a.chunk = a.chunk[n:]
}

// space returns where the missing bytes of an argument of n bytes go. Memory
// follows what has arrived, counting the waiting bytes about to be moved: at
// most four times that.
func (a *assembly) space(n, waiting int) []byte {
	if len(a.cur) == cap(a.cur) {
		size := max(bulkFirstBytes, 4*(len(a.cur)+waiting))
		grown := make([]byte, len(a.cur), min(n, size))
		copy(grown, a.cur)
		a.bytes += int64(cap(grown) - cap(a.cur))
		a.cur = grown
	}
	return a.cur[len(a.cur):min(cap(a.cur), n)]
}

func (a *assembly) finish() {
	a.args = append(a.args, slices.Clip(a.cur))
	a.cur = nil
}

// release gives back what is borrowed; the reader is not used any more.
func (r *reader) release() {
	r.need, r.big = 0, nil
	r.recycle()
	r.park()
	r.rest = nil
}
