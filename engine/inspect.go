package engine

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/faisca/fila/engine/budget"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// Holder is a live lease that keeps a throttle full.
type Holder = search.Holder

// Explanation says why a key or a message is in its present state.
type Explanation struct {
	KeyInfo
	Queue       string
	Message     *MessageInfo // nil: the explanation is about the key
	Holders     []Holder     // of the throttles in BlockedBy whose slots are all in use; at most 10
	HolderCount int64        // of all such leases, also those that Holders does not name
}

// Statuses of a message.
const (
	StatusReady   = search.StatusReady
	StatusDelayed = search.StatusDelayed
	StatusLeased  = search.StatusLeased
	StatusDead    = search.StatusDead
	StatusDone    = search.StatusDone
)

// MessageInfo describes a message.
type MessageInfo = search.MessageInfo

// positionMax bounds the messages that are counted for a position.
const positionMax = 100_000

// ExplainKey asks why a fairness key delivers or does not. The unexported fields are the
// progress of the call.
type ExplainKey struct {
	Queue, Key string

	explained *Explanation // its holders are being searched
	holders   *holderSearch
}

// ExplainKey explains a fairness key. The holders of its throttles may be found over several
// turns, for which it returns ErrWouldBlock; the rest of the explanation is as of the first of
// them.
//
// Errors: ErrNoQueue, ErrInvalid, ErrTooBig.
func (tx *Tx) ExplainKey(req *ExplainKey) (Explanation, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return Explanation{}, err
	}
	if err := c.cfg.Limits.CheckKey(req.Key); err != nil {
		return Explanation{}, err
	}
	x := req.explained
	if x == nil || req.holders.walk.epoch != c.epoch {
		if err := tx.afford(1); err != nil {
			return Explanation{}, err
		}
		x = new(c.explain(q, req.Key))
	}
	if err := tx.addHolders(x, &req.holders); err != nil {
		req.explained = x
		return Explanation{}, err
	}
	req.explained = nil
	return *x, nil
}

// explain explains a key, except for its holders (addHolders).
func (c *core) explain(q *queue, key string) Explanation {
	return Explanation{KeyInfo: c.keyInfo(q, key), Queue: q.name}
}

// Explain asks why a message is in its present state. The unexported fields are the progress of
// the call:
//
//  1. searchLeased collects the leased messages of the keys that the id may belong to.
//  2. A positionSearch finds the message in the store and counts those before it, off the
//     loop.
//  3. explainMessage checks that the result is current, with the change log of the queue. If
//     the log has overflowed, it starts again.
//  4. addHolders finds the leases that keep its throttles full.
type Explain struct {
	Queue string
	ID    ID

	leased    *leasedSearch
	search    *positionSearch
	explained *Explanation // its holders are being searched
	holders   *holderSearch
}

// Explain explains a message. It returns ErrWouldBlock while the message is being looked up. It
// cannot be part of a transaction, because a read in the middle of one would wait.
//
// Errors: ErrNoQueue, ErrNoMessage, ErrUnreadable.
func (tx *Tx) Explain(req *Explain) (Explanation, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return Explanation{}, err
	}
	if tx.atomic {
		return Explanation{}, errWaits
	}
	x := req.explained
	if x == nil || req.holders.walk.epoch != c.epoch {
		if x, err = tx.explainMessage(q, req); err != nil {
			return Explanation{}, err
		}
	}
	if err := tx.addHolders(x, &req.holders); err != nil {
		req.explained = x
		return Explanation{}, err
	}
	req.explained = nil
	return *x, nil
}

// explainMessage explains a message, except for its holders (addHolders).
func (tx *Tx) explainMessage(q *queue, req *Explain) (*Explanation, error) {
	c := tx.core
	f := req.search
	req.search = nil
	if f == nil || !f.done || !c.valid(&f.changeLog) {
		leasedIDs, err := tx.searchLeased(q, req.ID, &req.leased)
		if err != nil {
			return nil, err
		}
		req.search = c.searchPosition(q, req.ID, leasedIDs, tx.task)
		return nil, tx.await()
	}
	if f.err != nil {
		return nil, fmt.Errorf("explain %s: %w", req.ID, f.err)
	}
	found := f.found[0]
	is := gone
	if found != nil {
		is = c.locate(&f.changeLog, found)
	}
	switch is {
	case gone:
		return nil, fmt.Errorf("%w: %s in %q", ErrNoMessage, req.ID, req.Queue)
	case leased:
		m := c.leases.byID[req.ID]
		x := c.explain(q, m.key.name)
		x.Message = m.info(StatusLeased)
		x.State, x.Reason = KeyLeased, fmt.Sprintf("a consumer holds it until its lease ends; it is delivery %d", m.deliveries)
		x.ReadyAt, x.Throttle, x.BlockedBy = time.Unix(0, m.until), "", nil
		return &x, nil
	default:
		return new(c.explainFound(q, found, f.before)), nil
	}
}

// explainFound explains a message that is ready or delayed. before is the number of ready
// messages of its key before it.
func (c *core) explainFound(q *queue, f *foundMessage, before int64) Explanation {
	x := c.explain(q, f.key)
	status := StatusReady
	if q.isDLQ() {
		status = StatusDead
	}
	if f.delayed {
		x.State, x.Reason, x.ReadyAt = KeyDelayed, "it waits for its time", time.Unix(0, f.readyAt)
		x.Throttle, x.BlockedBy = "", nil
		status = StatusDelayed
	}
	x.Message = f.m.info(status)
	if f.delayed {
		x.Message.ReadyAt = x.ReadyAt
		x.noteTTL()
		return x
	}
	x.Message.Position = before
	if before > 0 && (x.State == KeyReady || x.State == KeyNoConsumer || x.State == KeyBusy) {
		x.Reason = fmt.Sprintf("%d messages of its key are before it; %s", before, x.Reason)
	}
	x.noteTTL()
	return x
}

// noteTTL adds to the reason that the message expires before it can be delivered, where that is
// known.
func (x *Explanation) noteTTL() {
	if end := x.Message.Expires(); !end.IsZero() && x.ReadyAt.After(end) {
		x.Reason += "; its time to live ends before that"
	}
}

// info describes the message in a status.
func (m *message) info(status string) *MessageInfo {
	i := &MessageInfo{
		ID: m.id, Status: status, Attempt: m.attempt, Deliveries: m.deliveries, EnqueuedAt: m.id.Time(), Consumer: m.held.Name(),
		Position: -1, Meta: m.meta(),
	}
	if status == StatusLeased {
		i.LeaseUntil = time.Unix(0, m.until)
	}
	return i
}

// positionSearch is the job that looks a message up and counts the ready messages of its key
// before it.
type positionSearch struct {
	lookup
	leased map[ID]struct{} // leased messages of the keys that the id may belong to: in the store they look ready
	before int64           // ready messages before the one found, at most positionMax
}

// searchPosition adds a positionSearch to the outbox. The task t is resumed with its result.
func (c *core) searchPosition(q *queue, id ID, leased map[ID]struct{}, t *Task) *positionSearch {
	f := &positionSearch{leased: leased}
	f.lookup = *c.newLookup(q, []ID{id}, t.resume)
	c.out.jobs = append(c.out.jobs, f)
	return f
}

// do implements job. It runs after the commit of the batch that was open at the request, so it
// sees the message as it was then or later.
func (f *positionSearch) do(store Store) {
	f.lookup.do(store)
	if f.err != nil || f.found[0] == nil || f.found[0].delayed {
		return
	}
	found := f.found[0]
	prefix := storage.AppendKeyPrefix(nil, f.no, found.key)
	end := storage.AppendMessageKey(nil, f.no, found.key, found.m.rank, found.m.id)
	_, f.err = search.Messages(store, prefix, end, func(r *search.Record) (bool, error) {
		delayed, err := r.Delayed(store)
		if _, isLeased := f.leased[r.ID]; !isLeased && !delayed {
			f.before++
		}
		return f.before < positionMax, err
	})
}

// QueueStats returns the counts of one queue. The error is ErrNoQueue.
func (tx *Tx) QueueStats(name string) (Counts, error) {
	q, err := tx.core.queueNamed(name)
	if err != nil {
		return Counts{}, err
	}
	return q.counts(), nil
}

// BudgetNames hands the names of a page of budgets to each, in the order of their creation, with
// the number of keys that wait for them. It looks at count at most, and returns the cursor of the
// next page, 0 at the end. Unlike Budgets it computes no refill, so what looks at all budgets every
// few seconds writes none of them.
func (tx *Tx) BudgetNames(cursor uint64, count int, each func(name string, waiting int64)) (next uint64) {
	return tx.core.accounts.Walk(cursor, count, func(a *budget.Account) {
		each(a.Name(), tx.core.order.Waiting(a.Name()))
	})
}

// QueueMemory asks for the bytes of memory that a queue uses. Messages that are on disk only
// use none. The unexported fields are the progress of the call.
type QueueMemory struct {
	Queue   string
	Samples int // fairness keys whose payloads are measured; the rest are extrapolated; 0: all

	started                 bool
	epoch, cursor           uint64
	samples                 int
	keys                    int64 // bytes of the keys visited
	messages, seen, payload int64 // messages of all keys, of the samples; bytes of the samples
}

const (
	// mapEntryBytes is the approximate size of an entry of a map, without what it points to.
	mapEntryBytes = 48 // bytes of an entry of a map, about
	// memoryKeysPerUnit is the number of keys, and of messages of a sample, for one unit of
	// work.
	memoryKeysPerUnit = 8
)

// QueueMemory estimates the bytes that a queue uses. It returns ErrWouldBlock if it continues
// in a later turn, as it does for many keys. ErrNoQueue is its only refusal.
func (tx *Tx) QueueMemory(req *QueueMemory) (int64, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return 0, err
	}
	if !req.started || req.epoch != c.epoch {
		*req = QueueMemory{Queue: req.Queue, Samples: req.Samples, started: true, epoch: c.epoch, samples: req.Samples}
	}
	n, yields := 0, false
	req.cursor = q.roster.WalkWhile(req.cursor, func(k *fairKey) bool {
		if yields = n%memoryKeysPerUnit == 0 && !tx.more(); yields {
			return false
		}
		n++
		if req.add(k) {
			c.spend(k.window.Len() / memoryKeysPerUnit)
		}
		return true
	})
	if yields {
		return 0, tx.yield()
	}
	req.started = false
	messages := req.messages + q.figures.Leased
	total := int64(unsafe.Sizeof(*q)) + int64(len(q.name)) + mapEntryBytes + req.keys + messages*(int64(unsafe.Sizeof(message{}))+mapEntryBytes)
	if req.seen > 0 {
		total += req.payload * messages / req.seen
	}
	return total, nil
}

// add adds the memory of a key, and reports whether the key was one of the samples.
func (req *QueueMemory) add(k *fairKey) bool {
	req.keys += int64(unsafe.Sizeof(*k)) + int64(len(k.name)) + mapEntryBytes
	req.messages += int64(k.window.Len())
	if req.Samples != 0 && req.samples == 0 {
		return false
	}
	req.samples--
	req.seen += int64(k.window.Len())
	for _, m := range k.window.All() {
		req.payload += int64(len(m.body))
	}
	return true
}

// ScriptInfo describes a hook of a queue.
type ScriptInfo struct {
	Queue string
	Kind  hook.Kind
	// Hook runs the source. A source that was accepted once and does not compile after a
	// restart, for instance because a limit is lower now, has a Hook that makes the safe
	// decisions and has no version.
	Hook   hook.Hook
	Source string
}

// Scripts lists the hooks of a queue, or of all queues if the name is empty. Errors: ErrNoQueue
// for an unknown name, and that of Queues.
func (tx *Tx) Scripts(queue string) ([]ScriptInfo, error) {
	c := tx.core
	names := []string{queue}
	if queue == "" {
		var err error
		if names, err = tx.Queues(); err != nil {
			return nil, err
		}
		if err := tx.afford(len(names) / queuesPerUnit); err != nil {
			return nil, err
		}
	} else if _, err := c.queueNamed(queue); err != nil {
		return nil, err
	}
	var list []ScriptInfo
	for _, name := range names {
		q := c.queues.byName[name]
		for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
			if src := *q.source(kind); src != "" {
				list = append(list, ScriptInfo{Queue: name, Kind: kind, Hook: c.out.snapshot.Hook(name, kind), Source: src})
			}
		}
	}
	return list, nil
}

// Explanations find leases by walking over all of them, in slices if there are many.
// Explanations are rare, and an index of leases by throttle would add work to every delivery.

// holderSearch looks for the leases that keep throttles full, for an explanation.
type holderSearch struct {
	walk *leaseWalk
	search.Holders
}

// searchHolders starts the search for an explanation.
func (c *core) searchHolders(x *Explanation) *holderSearch {
	s := &holderSearch{walk: c.leases.walk(c.epoch)}
	for i := range x.BlockedBy {
		if b := &x.BlockedBy[i]; b.Concurrency > 0 {
			s.Of(b.Throttle)
		}
	}
	return s
}

// addHolders adds to an explanation the leases that keep its throttles full. It returns
// ErrWouldBlock if it continues in a later turn; *slot then holds the search. Leases that
// began after the search are not named, and those that have ended are left out. HolderCount is
// that of the explanation where a single throttle is full, else that of the walk.
func (tx *Tx) addHolders(x *Explanation, slot **holderSearch) error {
	c := tx.core
	if x.State != KeyConcurrency {
		return nil
	}
	s := *slot
	if s == nil || s.walk.epoch != c.epoch {
		s = c.searchHolders(x)
		*slot = s
	}
	if s.Full() > 0 && !s.walk.each(tx, s.look) {
		return tx.yield()
	}
	*slot = nil
	x.Holders = s.List(func(id ID, fence uint64) bool {
		m := c.leases.byID[id]
		return m != nil && m.fence == fence
	})
	x.HolderCount = s.Count
	for i := range x.BlockedBy {
		if b := &x.BlockedBy[i]; s.Full() == 1 && s.Named(b.Throttle) {
			x.HolderCount = b.InUse
		}
	}
	return nil
}

// look adds a lease to those found if it names a full throttle. It always returns true: the
// walk goes over all leases.
func (s *holderSearch) look(m *message) bool {
	if !m.retrying && s.Named(m.throttleKeys()...) {
		s.Add(search.Holder{ID: m.id, Queue: m.key.queue.name, Key: m.key.name, Consumer: m.held.Name(), Until: time.Unix(0, m.until)}, m.fence)
	}
	return true
}
