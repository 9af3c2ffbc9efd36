package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// Header is a name and a value that travel with a message.
type Header = storage.Header

// DefaultKey is the fairness key of messages that name none.
const DefaultKey = hook.DefaultKey

// defaultRank is that of priority 4.
const (
	defaultRank = 5
	priorityMax = 9
)

// Enqueue asks for a message to be stored. Its byte slices belong to the engine
// from Prepare on and must not be changed.
type Enqueue struct {
	Queue     string
	Key       string // "": DefaultKey
	Weight    uint32 // of the key; 0: leave it as it is
	Cost      uint32 // of one delivery, from the key's share; 0: 1
	Throttles []string
	Headers   []Header
	Payload   []byte
	Priority  *uint8        // 0 to 9, within the key; nil: 4
	Delay     time.Duration // until it is ready; 0: at once
	At        int64         // Unix nanoseconds at which it is ready, in place of Delay
	TTL       time.Duration // from now until it dies undelivered; 0: the queue's
	Dedup     string        // "": none; DedupContent: the content is the id

	hook      hook.Hook      // that has decided, nil: none has
	hookDelay *time.Duration // its delay, in place of Delay and At; nil: not decided

	hash   nameHash // of Key
	record []byte
	dedup  string // what Dedup is in the store
	known  dedupView
}

// Prepare asks the queue's on_enqueue hook, checks a request against the limits
// and encodes the message's record. It runs on the connection: a slow script, or
// a large or refused message, costs the loop nothing.
func (e *Engine) Prepare(req *Enqueue) error {
	seen := e.durable.Load()
	s := e.Snapshot()
	if err := prepare(req, &e.cfg.Limits, s, wallNanos); err != nil {
		return err
	}
	prepareDedup(req, e.store, s, seen)
	return nil
}

func prepare(req *Enqueue, l *Limits, s *Snapshot, now func() int64) error {
	if req.Key == "" {
		req.Key = DefaultKey
	}
	if err := checkMessage(req, l); err != nil {
		return err
	}
	req.dedup = dedupID(req)
	s.decide(req, now)
	req.hash = hashName(req.Key)
	req.Throttles = distinct(req.Throttles)
	m := storage.Message{Payload: req.Payload, Headers: req.Headers, Throttles: req.Throttles, Weight: req.Weight, Cost: req.Cost}
	req.record = m.Append(nil)
	req.Payload, req.Headers = nil, nil
	return nil
}

func checkMessage(req *Enqueue, l *Limits) error {
	switch {
	case len(req.Payload) > l.Payload:
		return fmt.Errorf("%w: payload of %d bytes, the limit is %d", ErrTooBig, len(req.Payload), l.Payload)
	case len(req.Key) > l.Key:
		return fmt.Errorf("%w: KEY of %d bytes, the limit is %d", ErrTooBig, len(req.Key), l.Key)
	case req.Weight > l.Weight:
		return fmt.Errorf("%w: WEIGHT %d, it must be from 1 to %d", ErrInvalid, req.Weight, l.Weight)
	case req.Priority != nil && *req.Priority > priorityMax:
		return fmt.Errorf("%w: PRIORITY %d, it must be from 0 to %d", ErrInvalid, *req.Priority, priorityMax)
	case req.Delay < 0 || req.Delay > durationMax:
		return fmt.Errorf("%w: DELAY must be from 0 to %d ms", ErrInvalid, durationMax.Milliseconds())
	case len(req.Dedup) > l.Dedup:
		return fmt.Errorf("%w: DEDUP of %d bytes, the limit is %d", ErrTooBig, len(req.Dedup), l.Dedup)
	case req.TTL < 0 || req.TTL > durationMax:
		return fmt.Errorf("%w: TTL must be from 1 to %d ms", ErrInvalid, durationMax.Milliseconds())
	case req.At < 0:
		return fmt.Errorf("%w: AT must be a time after 1970", ErrInvalid)
	case req.Cost > l.Cost:
		return fmt.Errorf("%w: COST %d, it must be from 1 to %d", ErrInvalid, req.Cost, l.Cost)
	case len(req.Headers) > l.Headers:
		return fmt.Errorf("%w: %s, the limit is %d", ErrTooBig, amount(len(req.Headers), "header"), l.Headers)
	}
	if n := len(req.Throttles); n > l.Throttles {
		if n = countDistinct(req.Throttles); n > l.Throttles {
			return fmt.Errorf("%w: %s, the limit is %d", ErrTooBig, amount(n, "different throttle key"), l.Throttles)
		}
	}
	for _, t := range req.Throttles {
		if t == "" {
			return fmt.Errorf("%w: a throttle key has at least one byte", ErrInvalid)
		}
		if len(t) > l.Throttle {
			return fmt.Errorf("%w: THROTTLE of %d bytes, the limit is %d", ErrTooBig, len(t), l.Throttle)
		}
	}
	for i := range req.Headers {
		h := &req.Headers[i]
		if len(h.Name) == 0 {
			return fmt.Errorf("%w: a header name has at least one byte", ErrInvalid)
		}
		if len(h.Name) > l.HeaderName {
			return fmt.Errorf("%w: HEADER name of %d bytes, the limit is %d", ErrTooBig, len(h.Name), l.HeaderName)
		}
		if len(h.Value) > l.HeaderValue {
			return fmt.Errorf("%w: HEADER value of %d bytes, the limit is %d", ErrTooBig, len(h.Value), l.HeaderValue)
		}
	}
	return nil
}

// countDistinct counts the keys of a list, each once.
func countDistinct(keys []string) int {
	seen := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		seen[key] = struct{}{}
	}
	return len(seen)
}

// distinct leaves each throttle key in once: a message takes one token. The
// list itself may be shared, it is not changed.
func distinct(keys []string) []string {
	for i := 1; i < len(keys); i++ {
		if !slices.Contains(keys[:i], keys[i]) {
			continue
		}
		once := slices.Clone(keys[:i])
		for _, key := range keys[i+1:] {
			if !slices.Contains(once, key) {
				once = append(once, key)
			}
		}
		return once
	}
	return keys
}

// Enqueue stores a prepared message and returns its id.
func (tx *Tx) Enqueue(req *Enqueue) (ID, error) {
	c := tx.core
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return ID{}, err
	}
	if err := c.writableForNew(); err != nil {
		return ID{}, err
	}
	if req.dedup != "" {
		id, known, err := c.duplicate(q, req)
		switch {
		case err == ErrWouldBlock && !tx.atomic: //nolint:errorlint // a signal, never wrapped
			tx.repeatLookup(q, req)
			return ID{}, err
		case err != nil:
			return ID{}, err
		case known: // also where a first one would be refused now
			q.totals.deduplicated++
			return id, nil
		}
	}
	if q.set.PausedIn {
		return ID{}, fmt.Errorf("%w: %q takes no messages now", ErrPaused, q.name)
	}
	if q.limited() && !tx.atomic {
		if err := tx.AwaitCounts(); err != nil {
			return ID{}, err
		}
	}
	if err := q.full(req.Key); err != nil {
		return ID{}, err
	}
	readyAt, expires, err := c.times(q, req)
	if err != nil {
		return ID{}, err
	}
	k := c.keyWithHash(q, req.Key, req.hash)
	rank := uint8(defaultRank)
	if req.Priority != nil {
		rank = priorityMax - *req.Priority
	}
	m := c.newMessage(k, rank)
	m.throttles, m.cost, m.expires = k.throttleSet(req.Throttles), max(req.Cost, 1), expires
	if req.Weight > 0 {
		c.setWeight(k, req.Weight)
	}
	c.insert(m, req.record, readyAt)
	req.record = nil // the reply, which may wait for long, does not need it
	if req.dedup != "" {
		c.recordDedupID(q, req.dedup, m.id)
	}
	c.emitMessage(EventEnqueued, m)
	q.totals.enqueued++
	c.out.sync = true
	return m.id, nil
}

// newMessage makes a message that does not exist yet, with an id of its own.
func (c *core) newMessage(k *fairKey, rank uint8) *message {
	m := &message{key: k, cost: 1, attempt: 1, timer: -1, batch: c.out.batchNo}
	m.rank = rank
	m.id = c.ids.next(c.now, k.idHash, rank)
	if c.ids.last >= c.ids.until {
		c.reserveIDs()
	}
	return m
}

// reserveIDs persists a bound that the next ids stay below, so that a restart
// knows where to go on even if the clock went back meanwhile.
func (c *core) reserveIDs() {
	const ahead = int64(100e6) // 100 ms: after a crash, ids may run ahead of the clock by as much
	c.ids.until = c.ids.last + ahead
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, stateIDs), encodeUint(uint64(c.ids.until))) //nolint:gosec // after 1970
}

// insert puts the record of a new message into its queue, ready at a time that is
// past or to come.
func (c *core) insert(m *message, record []byte, readyAt int64) {
	k := m.key
	delayed := readyAt > c.now
	if delayed {
		record = storage.AppendReadyAt(record, readyAt)
	}
	if m.expires > 0 {
		record = storage.AppendExpiresAt(record, m.expires)
		c.index(&c.ttl.index, newExpiryEntry(m))
	}
	c.out.batch.Put(storage.Messages, c.messageKey(m), record)
	k.total++
	k.queue.total++
	c.setBody(m, record)
	if delayed {
		c.schedule(m, readyAt)
		c.settle(k)
		return
	}
	c.makeReady(m)
}
