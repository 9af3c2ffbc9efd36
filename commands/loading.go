package commands

import "github.com/faisca/fila/engine"

// loading counts what one reply reads of messages into memory, of what all connections
// may have there at the same time (Limits.Loading). How large a message is shows when it
// has been read, so room for the largest is taken first.
//
// A reply waits for room only while it has next to nothing, and takes what it has anew
// with it: two of them never wait for each other, and what a connection holds while it
// waits for its client is bounded.
type loading struct {
	h    *Handler
	took int64 // of the budget
	has  int64 // bytes of what was read
}

// loadingFree is how much a reply may have and still wait for more; one that has more is
// ended instead.
const loadingFree = 1 << 20

// begin makes room for the next message. False: the reply is to end before it.
func (l *loading) begin() bool {
	most := int64(l.h.cfg.Limits.Message)
	if l.h.loads.Try(most) {
		l.took += most
		return true
	}
	if l.has > loadingFree {
		return false
	}
	l.end()
	l.took = l.has + most
	l.h.loads.Take(l.took)
	return true
}

// loaded keeps of the room for a message what it needs.
func (l *loading) loaded(d *engine.Delivery) {
	if l.took <= l.has {
		return // it was in memory
	}
	l.has += int64(d.Held())
	l.h.loads.Give(l.took - l.has)
	l.took = l.has
}

// end gives all of it back: the messages were written, or are not to be.
func (l *loading) end() {
	if l.took > 0 {
		l.h.loads.Give(l.took)
	}
	l.took = 0
}
