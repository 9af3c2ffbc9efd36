package engine

import (
	"encoding/binary"
	"slices"
)

// A lease of several queues takes messages from them in turns. The turn belongs to the
// set of queues, not to a connection and not to the broker: it goes on where the last
// lease of the same queues has ended, whichever client made it and whatever other calls
// came between. Each set of queues has its own turn; two sets that have a queue in common
// are served in the order in which their clients ask.

// rotationsMax bounds the sets of queues whose turn is known. Beyond it, the set that
// became known first starts again with its first queue.
const rotationsMax = 4096

// rotations are the turns of the sets of queues that leases have asked for.
type rotations struct {
	bySet map[string]*rotation
	sets  []string // the one that became known first is first
	key   []byte   // scratch
}

// rotation is whose turn it is in a set of queues.
type rotation struct{ last *queue } // that delivered last

// of returns the turn of a set of queues; nil for a single one.
func (r *rotations) of(queues []*queue) *rotation {
	if len(queues) < 2 {
		return nil
	}
	r.key = r.key[:0]
	for _, q := range queues {
		r.key = binary.BigEndian.AppendUint32(r.key, q.no)
	}
	if turn := r.bySet[string(r.key)]; turn != nil {
		return turn
	}
	if len(r.sets) >= rotationsMax {
		delete(r.bySet, r.sets[0])
		r.sets = r.sets[1:]
	}
	if r.bySet == nil {
		r.bySet = map[string]*rotation{}
	}
	set, turn := string(r.key), &rotation{}
	r.bySet[set], r.sets = turn, append(r.sets, set)
	return turn
}

// start returns the index of the queue whose turn it is.
func (r *rotation) start(queues []*queue) int {
	if r == nil || r.last == nil {
		return 0
	}
	return slices.Index(queues, r.last) + 1
}

// served notes that a queue has delivered.
func (r *rotation) served(q *queue) {
	if r != nil {
		r.last = q
	}
}
