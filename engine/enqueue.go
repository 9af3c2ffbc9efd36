package engine

import (
	"cmp"
	"fmt"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/group"
	"github.com/faisca/fila/engine/internal/keytable"
	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/scripts"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// The path of an enqueue:
//
//  1. Prepare, on the goroutine of the connection: validate, run on_enqueue, encode the
//     record, look the unique id and the deduplication id up.
//  2. Tx.Enqueue, in a turn: check against the state of the queue, then create the message
//     and put its records into the open batch.
//  3. After the commit the reply leaves, with the id. A crash before it may lose or keep the
//     message; a crash after it keeps the message, as the sync mode promises.
//
// A new message is ready, or delayed by DELAY or AT. It is delivered from the head cache of
// its fairness key, or read back from disk if it is behind the edge (key.go).

// DefaultKey is the fairness key of messages that are enqueued without KEY.
const DefaultKey = hook.DefaultKey

// Enqueue is a request to store a message. The caller fills the exported fields and calls
// Preparer.Prepare; from then on the byte slices belong to the engine and must not be
// changed. A prepared request can be applied once.
type Enqueue struct {
	Queue    string
	Key      string // "": DefaultKey
	Meta            // without ExpiresAt and Body
	Charge   *int64 // to each of the budgets, 0 to credit.ChargeMax; nil: the cost. Meta.Charge follows from it
	Headers  []Header
	Payload  []byte
	Priority *uint8        // 0 to 9, within the key; nil: 4
	Delay    time.Duration // until it is ready; 0: at once
	At       int64         // Unix nanoseconds at which it is ready, in place of Delay
	TTL      time.Duration // from enqueue until it expires; 0: the queue's
	Dedup    string        // deduplication id; "": none; DedupContent: a hash of the content
	Replace  bool          // take the place of the message that has the unique id and waits, see replace.go
	MaxDelay time.Duration // with Replace: the most from the first enqueue until it is ready; 0: without limit

	Group string // of which it is to be a member; "": none

	hook         hook.Hook      // the script that has decided; nil: none has
	lenient      bool           // a budget that does not exist holds the message; false: it refuses it
	hookDelay    *time.Duration // the script's delay, instead of Delay and At; nil: not decided
	hookPriority *uint8         // the script's priority, instead of Priority; nil: not decided

	hash   keytable.Hash // of Key
	record []byte        // the encoded message; nil: not prepared, or stored already
	dedup  string        // Dedup as the store keeps it, see dedupID

	looks idLooks // the last ones, of dedup and of Unique
	owner *lookup // of the message that it may replace; nil: none so far

	groupLook *group.Lookup // of Group; nil: it was not needed so far
}

// Prepare validates the request, runs the queue's on_enqueue hook and encodes the record of
// the message. It runs on the goroutine of the connection: a slow script and a large or
// invalid message cost the loop nothing.
//
// Errors: ErrTooBig for a part over its limit, ErrInvalid for a value out of range. A
// failure of the hook is no error, see hook.SafeEnqueue; a failed look-up of an id is
// reported by Tx.Enqueue.
func (p *Preparer) Prepare(req *Enqueue) error {
	// seen is read before the snapshot: the look-up then claims no more than it has seen.
	seen := p.durable.Load()
	return prepare(req, &p.cfg.Limits, p.Snapshot(), p.store, seen, p.wall)
}

// prepare is Prepare against a snapshot, and a store that has all batches up to seen. Recurring messages use it
// from an off-loop job, with the time of the turn as now.
func prepare(req *Enqueue, l *Limits, s *Snapshot, store Store, seen uint64, now func() int64) error {
	if req.Key == "" {
		req.Key = DefaultKey
	}
	if err := checkMessage(req, l); err != nil {
		return err
	}
	req.dedup = dedupID(req)
	req.complete(s, now)
	m := req.settings()
	m.Payload, m.Headers = req.Payload, req.Headers
	req.record = m.Append(nil)
	req.Payload, req.Headers = nil, nil
	req.looks = req.look(store, s, seen)
	return nil
}

// complete runs the hook. After it, nothing but the turn changes the request.
func (req *Enqueue) complete(s *Snapshot, now func() int64) {
	s.decide(req, now)
	req.hash = keytable.HashOf(req.Key)
	limits.Once(&req.Meta)
}

// settings returns the record of the message without its payload and headers.
func (req *Enqueue) settings() storage.Message {
	req.Meta.Charge = req.charge()
	return storage.Message{Meta: req.Meta}
}

// charge is what the message costs each of its budgets, 0 without any.
func (req *Enqueue) charge() int64 {
	if len(req.Budgets) == 0 {
		return 0
	}
	return req.chargeEach()
}

// chargeEach is what it costs each budget that it may have.
func (req *Enqueue) chargeEach() int64 {
	if req.Charge == nil {
		return int64(max(req.Cost, 1))
	}
	return *req.Charge
}

// checkMessage validates a request before its hook runs. What the hook changes afterwards
// is within its own limits.
func checkMessage(req *Enqueue, l *Limits) error {
	switch {
	case len(req.Payload) > l.Payload:
		return fmt.Errorf("%w: payload of %d bytes, the limit is %d", ErrTooBig, len(req.Payload), l.Payload)
	case len(req.Key) > l.Key:
		return fmt.Errorf("%w: KEY of %d bytes, the limit is %d", ErrTooBig, len(req.Key), l.Key)
	case req.Weight > l.Weight:
		return fmt.Errorf("%w: WEIGHT %d, it must be from 1 to %d", ErrInvalid, req.Weight, l.Weight)
	case req.Priority != nil && *req.Priority > storage.PriorityMax:
		return fmt.Errorf("%w: PRIORITY %d, it must be from 0 to %d", ErrInvalid, *req.Priority, storage.PriorityMax)
	case req.Delay < 0 || req.Delay > durationMax:
		return fmt.Errorf("%w: DELAY must be from 0 to %d ms", ErrInvalid, durationMax.Milliseconds())
	case len(req.Dedup) > l.Dedup:
		return fmt.Errorf("%w: DEDUP of %d bytes, the limit is %d", ErrTooBig, len(req.Dedup), l.Dedup)
	case len(req.Unique) > l.Dedup:
		return fmt.Errorf("%w: UNIQUE of %d bytes, the limit is %d", ErrTooBig, len(req.Unique), l.Dedup)
	case req.Unique == "" && (req.Replace || req.UntilLease):
		return fmt.Errorf("%w: REPLACE and UNTIL LEASE need a UNIQUE id", ErrInvalid)
	case req.MaxDelay != 0 && !req.Replace:
		return fmt.Errorf("%w: MAXDELAY needs REPLACE", ErrInvalid)
	case req.MaxDelay < 0 || req.MaxDelay > durationMax:
		return fmt.Errorf("%w: MAXDELAY must be from 1 to %d ms", ErrInvalid, durationMax.Milliseconds())
	case req.TTL < 0 || req.TTL > durationMax:
		return fmt.Errorf("%w: TTL must be from 1 to %d ms", ErrInvalid, durationMax.Milliseconds())
	case req.At < 0:
		return fmt.Errorf("%w: AT must be a time after 1970", ErrInvalid)
	case req.Cost > l.Cost:
		return fmt.Errorf("%w: COST %d, it must be from 1 to %d", ErrInvalid, req.Cost, l.Cost)
	}
	if err := checkGroup(req, l); err != nil {
		return err
	}
	return cmp.Or(l.CheckMeta(&req.Meta, req.Charge), l.CheckHeaders(req.Headers))
}

// Enqueue stores a prepared message and returns its id. With a unique id that a message of the
// queue has, or with a deduplication id that is within its window, it stores nothing and returns
// the id of that message, even if the queue is paused or full. With Replace it may take the place of
// the message with the unique id instead, and returns its id, see replace.go. All checks precede the
// first change, so a refused request leaves no trace in memory or in the batch.
//
// It returns ErrWouldBlock and parks the task where one of these ids must be looked up again, where a
// message that it may replace has to be read, or where the counts of a limited queue are not exact yet. In a
// transaction the preflight has done all that, and the task never parks.
func (tx *Tx) Enqueue(req *Enqueue) (ID, error) {
	a, err := tx.admit(req)
	if err != nil {
		return ID{}, err
	}
	return tx.core.place(req, &a, nil), nil
}

// admission is what the checks of an enqueue have found. It is valid until the next change of
// the core.
type admission struct {
	queue            *queue
	known            ID            // the message that answers the request, see earlier; zero: store a new one
	kept             bool          // known has the unique id and is not replaced
	replaces         *foundMessage // whose place the message takes; nil: it is a new one
	cancelled        *foundMessage // that has the unique id, and is removed: its group is cancelled; nil: none
	is               status        // of replaces or cancelled: ready or delayed
	lent             *message      // that has lent the unique id, see owner; nil: none has
	readyAt, expires int64         // see times
	group            *group.Group  // that it joins; nil: none
	ignored          bool          // the delay of the hook, which ends after the time to live or is for an ordered queue
}

// admit makes all the checks of an enqueue and changes no queue: several requests may be admitted
// before the first is placed. Errors and parking are those of Enqueue.
func (tx *Tx) admit(req *Enqueue) (admission, error) {
	c := tx.core
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return admission{}, err
	}
	if err := c.writableForNew(); err != nil {
		return admission{}, err
	}
	if err := q.checkOrder(req); err != nil {
		return admission{}, err
	}
	a := admission{queue: q}
	if err := a.askIDs(tx, req); err != nil {
		return admission{}, err
	}
	if a.known != (ID{}) {
		return a, nil
	}
	if req.Group != "" {
		if a.group, err = c.groups.joinable(tx, req); err != nil {
			return admission{}, err
		}
	}
	if q.set.PausedIn {
		return admission{}, fmt.Errorf("%w: %q takes no messages now", ErrPaused, q.name)
	}
	if err := tx.checkRoom(&a, req); err != nil {
		return admission{}, err
	}
	if err := c.checkPaid(q, req, true); err != nil {
		return admission{}, err
	}
	err = c.times(&a, req)
	return a, err
}

// askIDs decides whether a message of the queue answers the request, or is replaced or removed by it.
func (a *admission) askIDs(tx *Tx, req *Enqueue) error {
	c := tx.core
	p, err := c.dedup.earlier(c, a.queue, req)
	if err != nil {
		return req.lookedUp(tx, err)
	}
	if a.known, a.lent = p.known, p.lent; p.known != (ID{}) || p.owner.ID == (ID{}) {
		return nil
	}
	if err := tx.findOwner(a, req, &p.owner); err != nil || a.known != (ID{}) || req.Replace {
		return err
	}
	a.known, err = c.dedup.repeated(c, a.queue, req)
	return req.lookedUp(tx, err)
}

// lookedUp returns the error of the look-ups of a request. It has them repeated where that is necessary.
func (req *Enqueue) lookedUp(tx *Tx, err error) error {
	if err == ErrWouldBlock && !tx.atomic { //nolint:errorlint // a signal, never wrapped
		return tx.awaitRead(req.lookAgain(&tx.core.out))
	}
	return err
}

// checkRoom returns an error if the queue has no room for a new message. One that takes the place of
// another needs none.
func (tx *Tx) checkRoom(a *admission, req *Enqueue) error {
	if a.replaces != nil {
		return a.checkPlace(req)
	}
	if a.queue.limited() && !tx.atomic {
		if err := tx.AwaitCounts(); err != nil {
			return err
		}
	}
	return a.queue.full(req.Key)
}

// place stores the message of an admitted request and returns its id, or that of the message
// which is known. body is that of a publish; nil: the message has its own. It cannot fail.
func (c *core) place(req *Enqueue, a *admission, body *sharedBody) ID {
	q := a.queue
	if a.known != (ID{}) {
		q.figures.Count(figures.Deduplicated, 1)
		if a.kept && req.dedup != "" {
			c.dedup.record(c, q, req.dedup, a.known)
			c.out.sync = true
		}
		return a.known
	}
	if a.ignored {
		r := scripts.Rejection{Hook: req.hook, At: c.now, Field: "delay_ms", Value: req.hookDelay.Milliseconds()}
		if !q.ordered() {
			r.TTL = time.Duration(a.expires - c.now)
		}
		c.reportRejected(r)
	}
	if a.cancelled != nil {
		a.removeOwner(c)
	}
	k := c.keyWithHash(q, req.Key, req.hash)
	if req.ExpiresAt = a.expires; a.group != nil {
		c.groups.Join(a.group, q.no)
		req.MemberOf = a.group.Number()
	}
	var m *message
	if a.replaces != nil {
		m = c.replace(req, a, body)
	} else {
		m = c.add(k, req, a, body)
	}
	req.record, req.owner = nil, nil // free the memory: the reply may wait, and does not need the record
	if req.dedup != "" {
		c.dedup.record(c, q, req.dedup, m.id)
	}
	c.emitMessage(EventEnqueued, m)
	c.out.sync = true
	return m.id
}

// add stores the message of an admitted request as a new one.
func (c *core) add(k *fairKey, req *Enqueue, a *admission, body *sharedBody) *message {
	q := k.queue
	m := c.newMessage(k, req.hash.InID(), c.rankOf(q, req))
	m.give(&req.Meta, c.order.throttleSet(k, &req.Meta), false)
	c.weigh(k, req)
	body.add(c, m)
	if req.MemberOf != 0 {
		req.record = storage.AppendMember(req.record, req.MemberOf)
	}
	c.insert(m, req.record, a.readyAt)
	if req.Unique != "" {
		c.dedup.take(c, m, req.Unique, a.lent)
	}
	q.figures.Count(figures.Enqueued, 1)
	if q.recordsSignals() {
		c.signals.record(c, m, signalEnqueued, 1)
	}
	return m
}

// weigh gives a key the weight of a request that has one.
func (c *core) weigh(k *fairKey, req *Enqueue) {
	if req.Weight > 0 {
		c.setWeight(k, req.Weight)
	}
}

// checkPaid returns an error if a budget does not exist, unless that holds the message, or, of a message that is
// enqueued now, if one that refuses does not cover the charge.
func (c *core) checkPaid(q *queue, req *Enqueue, now bool) error {
	if len(req.Budgets) == 0 {
		return nil
	}
	charge := req.Meta.Charge
	for i, a := range c.accounts.of(c.order.recentSet(q, req.hash, &req.Meta)) {
		switch {
		case a == nil && req.lenient:
			continue
		case a == nil:
			return noBudget(req.Budgets[i])
		}
		if c.catchUp(a); now && a.Refuses(charge) {
			return fmt.Errorf("%w: budget %.80q has %d credits available and may be %d in debt, the charge is %d", ErrCredit, a.Name(), a.Available(), a.Debt(), charge)
		}
	}
	return nil
}

// newMessage makes a message with a new id, which contains the hash of its key. The caller stores it with insert.
func (c *core) newMessage(k *fairKey, idHash uint32, rank uint8) *message {
	m := &message{key: k, cost: 1, attempt: 1, timer: -1, batch: c.out.batchNo}
	m.rank = rank
	m.id = c.nextID(idHash, rank)
	return m
}

// nextID returns a new id. It renews the reservation of ids when the new id has reached the reserved bound.
func (c *core) nextID(idHash uint32, rank uint8) ID {
	id := c.ids.next(c.now, idHash, rank)
	if c.ids.last >= c.ids.until {
		c.reserveIDs()
	}
	return id
}

// reserveIDs makes a bound durable that the next ids stay below. A restart continues from
// the bound, so no id is given out twice even if the clock was set back meanwhile. The
// bound moves in steps, because one record for each message would double the writes.
func (c *core) reserveIDs() {
	const ahead = int64(100e6) // 100 ms: how far ids may run ahead of the clock after a crash
	c.ids.until = c.ids.last + ahead
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateIDs), storage.EncodeUint(uint64(c.ids.until)))
}

// insert stores the record of a message that is new in its queue, and counts the message.
func (c *core) insert(m *message, record []byte, readyAt int64) {
	k := m.key
	k.total++
	k.queue.figures.Change(figures.Messages{Total: 1})
	if n := k.total; (n&(n-1) == 0 || n%followEvery == 0) && k.queue.figures.Rises(&k.stats, uint64(n)) {
		c.history.follow(c, k)
	}
	c.put(m, record, readyAt)
}

// put stores the record of a message and enters the message into the structures of
// its state: ready, or delayed if readyAt is later than now. A message with a TTL also gets
// its entry in the index of expiries. All records are in the open batch, so that a crash
// keeps all of them or none. It returns the whole record.
func (c *core) put(m *message, record []byte, readyAt int64) []byte {
	k := m.key
	delayed := readyAt > c.now
	if delayed {
		record = storage.AppendReadyAt(record, readyAt)
	}
	if m.expires > 0 {
		record = storage.AppendExpiresAt(record, m.expires)
		c.index(&c.ttl.index, newExpiryEntry(m))
	}
	stored := record
	if id := m.tied().body; id != (ID{}) {
		stored = storage.WithBody(record, id)
	}
	c.out.batch.Put(storage.Messages, c.messageKey(m), stored)
	c.heads.setBody(m, record)
	if delayed {
		c.schedule(m, readyAt)
		c.settle(k)
		return record
	}
	c.makeReady(m)
	return record
}
