// Package census counts the messages in a store at a start or recovery, off the loop:
//
//	Open ──Take──▶ counting ──parts──▶ done
//	                 └─Stop, error──▶ ended
//
// Recovery reads keys, not messages, so that it takes seconds, not minutes. Until the census is done, the counts of
// the engine are differences to the state of the store at Open; each part has what the store held, which makes the
// counts of its keys exact.
package census

import (
	"sync/atomic"

	"github.com/faisca/fila/storage"
)

// Census is a count that is to be taken, is under way, or has ended.
type Census struct {
	stopped  atomic.Bool
	messages storage.Iterator
	due      storage.Iterator
}

// Open returns a census of what two iterators show: over all messages and over the index of those that are delayed, as
// of the same moment. Take or Close closes them.
func Open(messages, delayed storage.Iterator) *Census {
	return &Census{messages: storage.KeysOnly(messages), due: storage.KeysOnly(delayed)}
}

// Stop ends a census that is under way, at its next record. It may be called on any
// goroutine; s may be nil.
func (s *Census) Stop() {
	if s != nil {
		s.stopped.Store(true)
	}
}

// Stopped reports whether Stop was called: the parts mean nothing any more.
func (s *Census) Stopped() bool { return s.stopped.Load() }

// Close closes the iterators of a census that is not taken.
func (s *Census) Close() {
	s.messages.Close()
	s.due.Close()
}

// Part is a part of the result.
type Part struct {
	Keys []Key
	Last bool  // no other follows
	Err  error // why no other follows, and the census is not complete
}

// Key is a fairness key of a queue with what the store has of it.
type Key struct {
	Queue             uint32 // number of the queue
	Name              string
	Messages, Delayed int64 // messages, and those of them that are delayed
}

// keysMax is how many keys a part has at most.
const keysMax = 1024

type key struct {
	queue uint32
	name  string
}

// Take counts, calls emit with each part of the result, and closes the census. The delayed messages are counted first,
// so that each key is emitted once, complete.
func (s *Census) Take(emit func(*Part)) {
	defer s.Close()
	part := &Part{}
	delayed, err := s.delayed()
	if err != nil {
		emit(&Part{Err: err})
		return
	}
	var prefix []byte
	for ok := s.messages.Seek(nil); ok && !s.Stopped(); ok = s.messages.Next() {
		k := s.messages.Key()
		if n := len(part.Keys); n > 0 && len(k) == len(prefix)+17 && string(k[:len(prefix)]) == string(prefix) {
			part.Keys[n-1].Messages++
			continue
		}
		mk, err := storage.ParseMessageKey(k)
		if err != nil {
			emit(&Part{Err: err})
			return
		}
		if len(part.Keys) == keysMax {
			emit(part)
			part = &Part{}
		}
		prefix = storage.AppendKeyPrefix(prefix[:0], mk.Queue, mk.Key)
		part.Keys = append(part.Keys, Key{Queue: mk.Queue, Name: mk.Key, Messages: 1, Delayed: delayed[key{mk.Queue, mk.Key}]})
	}
	part.Err = s.messages.Err()
	part.Last = true
	emit(part)
}

// delayed returns the number of delayed messages of each key that has any.
func (s *Census) delayed() (map[key]int64, error) {
	counts := map[key]int64{}
	for ok := s.due.Seek(nil); ok && !s.Stopped(); ok = s.due.Next() {
		_, mk, err := storage.ParseScheduledKey(s.due.Key())
		if err != nil {
			return nil, err
		}
		counts[key{mk.Queue, mk.Key}]++
	}
	return counts, s.due.Err()
}
