package engine

import (
	"sync/atomic"

	"github.com/faisca/fila/storage"
)

// census counts the messages that the store held at start. It runs beside the
// loop, which meanwhile counts differences: a total is exact when both are added.
type census struct {
	epoch    uint64
	stopped  atomic.Bool
	messages storage.Iterator
	due      storage.Iterator
}

// newCensus fixes what is counted: the store as it is now, before the first turn.
func newCensus(epoch uint64, store Store) *census {
	return &census{epoch: epoch, messages: store.Scan(storage.Messages, nil, nil), due: store.Scan(storage.Scheduled, nil, nil)}
}

// stop makes a running census end soon.
func (s *census) stop() {
	if s != nil {
		s.stopped.Store(true)
	}
}

// close lets go of the store: of a census that is not taken, or was.
func (s *census) close() {
	s.messages.Close()
	s.due.Close()
}

// censusPart is a task with a piece of the result.
type censusPart struct {
	census *census
	keys   []keyCount
	last   bool
	err    error
}

type keyName struct {
	queue uint32
	key   string
}

type keyCount struct {
	keyName
	n, delayed int64 // messages, and those of them that are delayed
}

// take counts and hands the result on in parts. It closes what the census holds. A
// key is counted as a whole: its messages, and those of them that are delayed.
func (s *census) take(hand func(*censusPart)) {
	defer s.close()
	const keysMax = 1024
	part := &censusPart{census: s}
	delayed, err := s.delayed()
	if err != nil {
		hand(&censusPart{census: s, err: err})
		return
	}
	var prefix []byte
	for ok := s.messages.Seek(nil); ok && !s.stopped.Load(); ok = s.messages.Next() {
		k := s.messages.Key()
		if n := len(part.keys); n > 0 && len(k) == len(prefix)+17 && string(k[:len(prefix)]) == string(prefix) {
			part.keys[n-1].n++
			continue
		}
		mk, err := storage.ParseMessageKey(k)
		if err != nil {
			hand(&censusPart{census: s, err: err})
			return
		}
		if len(part.keys) == keysMax {
			hand(part)
			part = &censusPart{census: s}
		}
		prefix = storage.AppendKeyPrefix(prefix[:0], mk.Queue, mk.Key)
		part.keys = append(part.keys, keyCount{keyName: keyName{mk.Queue, mk.Key}, n: 1, delayed: delayed[keyName{mk.Queue, mk.Key}]})
	}
	part.err = s.messages.Err()
	part.last = true
	hand(part)
}

// delayed counts the delayed messages of each key that has some.
func (s *census) delayed() (map[keyName]int64, error) {
	counts := map[keyName]int64{}
	for ok := s.due.Seek(nil); ok && !s.stopped.Load(); ok = s.due.Next() {
		_, mk, err := storage.ParseScheduledKey(s.due.Key())
		if err != nil {
			return nil, err
		}
		counts[keyName{mk.Queue, mk.Key}]++
	}
	return counts, s.due.Err()
}

// Apply adds what was counted.
func (p *censusPart) Apply(tx *Tx) error {
	c := tx.core
	if p.census != c.ops.census || p.census.stopped.Load() {
		return nil
	}
	if p.err != nil {
		c.cfg.Log.Error().Err(p.err).Msg("counting the messages failed, counts stay estimates until the next start")
		c.endCensus()
		return nil //nolint:nilerr // logged, and nobody waits for this task
	}
	c.spend(len(p.keys))
	for _, n := range p.keys {
		q := c.queues.byNumber[n.queue]
		if q == nil {
			continue
		}
		q.total += n.n
		q.delayed += n.delayed
		if k := q.keys.get(n.key); k != nil && !k.counted {
			k.total += n.n
			k.delayed += n.delayed
			k.counted = true
			c.settle(k)
		}
	}
	if !p.last {
		return nil
	}
	for _, q := range c.queues.byName {
		q.counted = true
	}
	c.endCensus()
	return nil
}

// AwaitCounts waits until the counts are exact: right after a start or a recovery
// they are not, for as long as it takes to read all keys of the store.
func (tx *Tx) AwaitCounts() error {
	c := tx.core
	if c.ops.census == nil {
		return nil
	}
	c.ops.uncounted = append(c.ops.uncounted, tx.task)
	tx.park(nil, 0, false)
	return ErrWouldBlock
}

// endCensus lets those go on who wait for it.
func (c *core) endCensus() {
	c.ops.census = nil
	tasks := c.ops.uncounted
	c.ops.uncounted = nil
	c.cronCounted()
	c.tasks.yielded = append(c.tasks.yielded, tasks...) // there may be very many
}
