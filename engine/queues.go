package engine

// queueSet is all queues.
type queueSet struct {
	byName     map[string]*queue
	byNumber   map[uint32]*queue
	names      []string // in order; nil: to be built anew. Shared with replies: never changed
	nextNumber uint32
	deleted    []*queue            // waiters of theirs have to be answered
	pausedOut  map[*queue]struct{} // those whose deliveries are paused

	untimed
}

func (s *queueSet) reset() {
	*s = queueSet{byName: map[string]*queue{}, byNumber: map[uint32]*queue{}, pausedOut: map[*queue]struct{}{}, nextNumber: s.nextNumber}
}
