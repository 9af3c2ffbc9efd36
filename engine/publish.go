package engine

import (
	"fmt"

	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/topic"
	"github.com/faisca/fila/internal/errtext"
)

// The path of a publish:
//
//  1. PreparePublish, on the goroutine of the connection: match the headers with the bindings in
//     the snapshot, and prepare an enqueue for each queue that is to get the message, with the
//     hook of that queue. The payload is encoded once, and queues that store the same record
//     share it.
//  2. Tx.Publish, in a turn. If the bindings are others by now, the requests are made again by an
//     off-loop job, since hooks never run in a turn. Then all queues admit their message, and only
//     then the first one gets it: all messages are in one batch, and a queue that refuses refuses
//     the publish.
//     A payload with headers that is not short is stored once, as a body; see package body.
//  3. After the commit the reply leaves, with the queues and ids.

// Publish is a request to store a message in all queues that are bound to a topic. The caller
// fills the exported fields and calls Preparer.PreparePublish; from then on the request belongs to
// the engine. It can be applied once.
type Publish struct {
	Topic      string
	Message    Enqueue // Queue is not used
	BestEffort bool    // a queue that refuses is left out; false: it refuses the publish
	BytesMax   int     // that the records of all queues may have together; 0: any number

	encoded  *topic.Encoded  // nil: not prepared
	bindings *topic.Bindings // that Requests follow from
	requests []Enqueue       // one for each queue, in their order
	failed   error           // why they could not be made again
	stored   int             // bytes of the records of all queues
	own      int             // of these, bytes of records that no other queue shares
}

// Published is a message that a publish has stored.
type Published struct {
	Queue string
	ID    ID
}

// PreparePublish validates the request and prepares an enqueue for each queue whose binding the
// message meets. It runs on the goroutine of the connection.
//
// Errors: those of Prepare, ErrTooBig if the messages have more than BytesMax together.
func (p *Preparer) PreparePublish(req *Publish) error {
	seen := p.durable.Load() // before the snapshot, as for Prepare
	s := p.Snapshot()
	if err := req.begin(&p.cfg.Limits); err != nil {
		return err
	}
	return req.prepare(s, p.store, seen, p.wall)
}

// begin validates the request and encodes the message.
func (req *Publish) begin(l *Limits) error {
	if err := l.CheckTopicName(req.Topic); err != nil {
		return err
	}
	m := &req.Message
	if m.Key == "" {
		m.Key = DefaultKey
	}
	if err := checkMessage(m, l); err != nil {
		return err
	}
	limits.Once(&m.Meta)
	record := m.settings()
	record.Payload, record.Headers = m.Payload, m.Headers
	var err error
	req.encoded, err = topic.Encode(&record) // which the engine owns, with the payload and the headers
	m.Payload, m.Headers = record.Payload, record.Headers
	return err
}

// prepare makes the requests for the queues that the bindings of a snapshot name. Look-ups of
// ids see all batches up to seen.
func (req *Publish) prepare(s *Snapshot, store Store, seen uint64, now func() int64) error {
	b := s.topics.Bindings(req.Topic)
	req.bindings, req.requests, req.own = b, nil, 0
	size, n := 0, 0
	for range b.Matching(req.Message.Headers) {
		n++
	}
	if most := req.BytesMax; most > 0 && n*req.encoded.Len() > most {
		return req.tooLong(n, n*req.encoded.Len())
	}
	req.requests = make([]Enqueue, 0, n)
	for queue := range b.Matching(req.Message.Headers) {
		req.requests = append(req.requests, req.Message)
		one := &req.requests[len(req.requests)-1]
		one.Queue = queue
		one.dedup = dedupID(one)
		one.complete(s, now)
		record, shared := req.encoded.Record(new(one.settings()))
		if one.record = record; !shared {
			req.own += len(record)
		}
		one.Payload, one.Headers = nil, nil
		one.looks = one.look(store, s, seen)
		if size += len(one.record); req.BytesMax > 0 && size > req.BytesMax {
			return req.tooLong(n, size)
		}
	}
	req.stored = size
	return nil
}

// Stored returns the bytes that the prepared request stores in all queues.
func (req *Publish) Stored() int { return req.stored }

func (req *Publish) tooLong(queues, size int) error {
	return fmt.Errorf("%w: the message for %s has %d bytes in all, the limit is %d; publish a shorter one", ErrTooBig, errtext.Amount(queues, "queue"), size, req.BytesMax)
}

// Bytes returns the memory that the prepared request takes.
func (req *Publish) Bytes() int {
	const request = 512 // about what an Enqueue takes
	if req.encoded == nil {
		return 0
	}
	return req.encoded.Len() + request*len(req.requests) + req.own
}

// Publish stores a prepared message in all queues whose bindings it meets, in one write, and
// returns the ids in the order of the queues. With a unique id or a deduplication id that a queue
// knows, that queue stores nothing and its id is that of the first message. A queue that refuses
// the message refuses the publish, and then nothing has changed; with BestEffort it is left out.
//
// It returns ErrWouldBlock and parks the task where Enqueue does, and while the requests are made
// again for other bindings. Errors: ErrMisconf, those of Enqueue with the name of the queue.
func (tx *Tx) Publish(req *Publish) ([]Published, error) {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return nil, err
	}
	switch refresh := tx.refreshPublish(req); {
	case refresh != nil && tx.atomic:
		return nil, errTopicChanged
	case refresh != nil:
		return nil, tx.awaitRead(refresh)
	case req.failed != nil:
		return nil, req.failed
	}
	admitted := make([]admission, len(req.requests))
	left := 0 // out
	for i := range req.requests {
		a, err := tx.admit(&req.requests[i])
		switch {
		case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
			return nil, err
		case err != nil && req.BestEffort:
			left++
		case err != nil:
			return nil, fmt.Errorf("queue %.255q refuses the message: %w", req.requests[i].Queue, err)
		}
		admitted[i] = a
	}
	c.spend(len(req.requests))
	shared := c.shareBody(req, admitted)
	out := make([]Published, 0, len(req.requests)-left)
	for i := range req.requests {
		if a := &admitted[i]; a.queue != nil {
			out = append(out, Published{a.queue.name, c.place(&req.requests[i], a, shared)})
		}
	}
	c.storeBody(shared)
	c.topics.Published(req.Topic, len(req.requests) > 0, len(out))
	req.encoded, req.requests, req.Message = nil, nil, Enqueue{} // free the memory: the reply may wait
	return out, nil
}

// PreflightPublish waits for what Publish needs in a transaction: requests for the present
// bindings, current look-ups of ids, exact counts of limited queues.
func (tx *Tx) PreflightPublish(req *Publish) error {
	if refresh := tx.refreshPublish(req); refresh != nil {
		return tx.awaitRead(refresh)
	}
	for i := range req.requests {
		one := &req.requests[i]
		q := tx.core.queues.byName[one.Queue]
		if q == nil {
			continue // Publish reports the error
		}
		if err := tx.PreflightEnqueue(one); err != nil {
			return err
		}
	}
	return nil
}

// errTopicChanged refuses a publish behind a change of its topic in the same transaction.
var errTopicChanged = fmt.Errorf("%w: the transaction changes the topic before it publishes to it; publish in another one", ErrInvalid)

// refreshPublish returns what makes the requests again, if the topic has other bindings than those
// that they were made for, or repeats the look-ups that are too old, for awaitRead. nil: there
// is nothing to do.
func (tx *Tx) refreshPublish(req *Publish) func(store Store) (give func()) {
	c := tx.core
	s, batch, now := c.out.snapshot, c.out.batchNo, c.calendar()
	if s.topics.Bindings(req.Topic) != req.bindings {
		return func(store Store) func() {
			made := *req
			err := made.prepare(s, store, batch, func() int64 { return now })
			return func() {
				req.bindings, req.requests, req.failed = made.bindings, made.requests, err
				req.stored, req.own = made.stored, made.own
			}
		}
	}
	var stale []*Enqueue
	for i := range req.requests {
		one := &req.requests[i]
		if _, err := c.dedup.earlier(c, c.queues.byName[one.Queue], one); err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
			stale = append(stale, one)
		}
	}
	if stale == nil {
		return nil
	}
	return func(store Store) func() {
		looks := make([]idLooks, len(stale))
		for i, one := range stale {
			looks[i] = one.look(store, s, batch)
		}
		return func() {
			for i, one := range stale {
				one.looks = looks[i]
			}
		}
	}
}
