package relay

import (
	"bytes"
	"errors"
	"sync/atomic"
	"time"
)

// Again says what is done with a command that was sent and is not answered when the link breaks.
type Again uint8

const (
	// Never has the client told that it may have happened.
	Never Again = iota
	// Always has it sent to the next leader. It only reads, or what it did is undone with its
	// connection.
	Always
)

// Identity describes the client of a command. It is sent to the leader before the command, unless the
// command before had the same one. Identities are compared by their address.
type Identity struct {
	Wire []byte // a command that replies with the id of the connection at the leader
}

// Command is a command on its way to the leader, and its reply. The exported fields are set before
// Send and belong to the relay after it.
type Command struct {
	Who  *Identity
	Wire []byte // what is sent, see AppendCommand
	Skip int    // replies before the one that counts: of MULTI and of what it queues
	// Again is about links that break. A command that the leader has refused with LOADING has had
	// no effect, and is always sent again while its time lasts.
	Again Again
	// Rest returns what is sent in place of Wire after the command has waited at a leader that is
	// lost. Nil: Wire.
	Rest func(waited time.Duration) []byte
	// Note is called with the strings of a reply that the client may not have received (see
	// Scanner.Note), and Lost after them, if it has not: from any goroutine, one after the other. Nil:
	// such a reply has no consequences.
	Note func(path []int, text []byte)
	Lost func()

	state atomic.Uint32
	body  []byte // the reply, if it came whole
	parts *parts // the reply, if it comes in parts

	// Guarded by the lock of the connection.
	identity bool      // it is the Wire of an Identity
	start    int64     // where it begins in what is sent on the stream
	skip     int       // of Skip, those missing
	deadline time.Time // until when it is sent again; zero: it has not been refused
	refusal  []byte    // what the leader refused it with, if it is to be sent again
	waits    bool      // a leader that is lost has had it as the first without a reply
	began    time.Time // when it became that
	took     time.Duration
}

// States of a command.
const (
	waiting uint32 = iota
	whole          // body is the reply
	partial        // parts has the reply
)

// Ready reports whether Copy returns without waiting for the leader, or for no more than the rest of a
// long reply.
func (c *Command) Ready() bool { return c.state.Load() != waiting }

// Took returns how long the leader has taken for the command alone, once it is ready.
func (c *Command) Took() time.Duration { return c.took }

// Reply returns the reply as far as it is known: all of it, if it is short. It may be called once the
// command is ready.
func (c *Command) Reply() []byte {
	if c.parts != nil {
		return c.parts.first
	}
	return c.body
}

// Short reports whether the reply is so short that it came whole, in shortMax bytes.
func (c *Command) Short() bool { return c.parts == nil && len(c.body) <= shortMax }

// shortMax is the size up to which a reply is short.
const shortMax = 4 << 10

// ErrCut ends a reply of which the client has had a part: its connection has to be closed.
var ErrCut = errors.New("the link to the leader broke within a reply")

// Copy passes the reply to a function, in pieces that are valid during its call. It may be called once,
// when the command is ready.
func (c *Command) Copy(to func([]byte)) error {
	if c.parts != nil {
		return c.parts.copy(to)
	}
	to(c.body)
	return nil
}

// Drop says that the client does not get the reply, or not all of it. It may be called once the command
// is ready, also after Copy.
func (c *Command) Drop() {
	switch {
	case c.parts != nil:
		c.parts.drop()
	case c.Lost != nil && len(c.body) > 0:
		s := Scanner{Note: c.Note}
		if _, _, err := s.Next(c.body); err == nil { // it was scanned before
			c.Lost()
		}
	}
}

// parts passes a long reply from the reader of a stream to the writer of a client, so that neither
// holds more than a piece of it.
type parts struct {
	first []byte        // the beginning
	piece chan []byte   // unbuffered
	taken chan struct{} // after each piece
	over  chan struct{} // closed after the last piece, or when there are no more
	gone  chan struct{} // closed when no piece is wanted any more
	lost  func()
	// state says which of the two ends has come first.
	state atomic.Uint32
	cut   bool // written before over is closed
}

const (
	running uint32 = iota
	dropped
	complete
)

func newParts(first []byte, lost func()) *parts {
	return &parts{
		first: first, piece: make(chan []byte), taken: make(chan struct{}), over: make(chan struct{}), gone: make(chan struct{}), lost: lost,
	}
}

// give passes a piece on and returns when it is not needed any more.
func (p *parts) give(piece []byte) {
	select {
	case p.piece <- piece:
		<-p.taken
	case <-p.gone:
	}
}

// end says that the reply is complete, or that it is cut.
func (p *parts) end(cut bool) {
	p.cut = cut
	if !cut && !p.state.CompareAndSwap(running, complete) && p.lost != nil {
		p.lost()
	}
	close(p.over)
}

func (p *parts) copy(to func([]byte)) error {
	to(p.first)
	for {
		select {
		case piece := <-p.piece:
			to(piece)
			p.taken <- struct{}{}
		case <-p.over:
			if p.cut {
				return ErrCut
			}
			return nil
		}
	}
}

// drop ends the pieces. What they would have been is noted first, if the reply is not complete.
func (p *parts) drop() {
	if p.state.CompareAndSwap(running, dropped) {
		close(p.gone)
	} else if p.lost != nil {
		p.lost()
	}
}

// loading reports whether a reply says that the leader has refused a command that had no effect.
func loading(reply []byte) bool { return bytes.HasPrefix(reply, []byte("-LOADING ")) }

func noLeader() []byte {
	return []byte("-LOADING no node of the cluster leads, try again in a moment\r\n")
}

func unknown() []byte {
	return []byte("-MISCONF the connection to the leader was lost; the command may have happened or not\r\n")
}
