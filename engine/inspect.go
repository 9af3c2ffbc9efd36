package engine

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/faisca/fila/storage"
)

// Holder is a lease that keeps a throttle full.
type Holder struct {
	ID                   ID
	Queue, Key, Consumer string
	Until                time.Time
}

// holdersMax bounds how many holders an explanation names: those whose leases
// end first.
const holdersMax = 10

// Explanation says why a key or a message is where it is.
type Explanation struct {
	KeyInfo
	Queue       string
	Message     *MessageInfo // nil: it is about the key
	Holders     []Holder     // of the throttles it waits for whose leases are all in use
	HolderCount int64
}

// What becomes of a message next.
const (
	StatusReady   = "ready"
	StatusDelayed = "delayed"
	StatusLeased  = "leased"
	StatusDead    = "dead" // ready in a dead-letter queue
)

// MessageInfo describes a message.
type MessageInfo struct {
	ID                              ID
	Status                          string
	Attempt, Deliveries             uint32
	EnqueuedAt, ReadyAt, LeaseUntil time.Time // zero where it does not apply
	Consumer                        string
	Position                        int64 // ready messages of its key before it, at most positionMax; -1: it is not ready
	Throttles                       []string
	Cost                            uint32
	ExpiresAt                       time.Time // when its time to live is over; zero: never
}

// positionMax is where counting ends how many messages are before one.
const positionMax = 100_000

// ExplainKey asks why a fairness key delivers or does not.
type ExplainKey struct {
	Queue, Key string

	explained *Explanation // its holders are being looked for
	holders   *holderSearch
}

// ExplainKey says why. Where many leases are held, those that are in its way are found
// over several turns; everything else is as it was in the first of them.
func (tx *Tx) ExplainKey(req *ExplainKey) (Explanation, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return Explanation{}, err
	}
	if err := c.checkKey(req.Key); err != nil {
		return Explanation{}, err
	}
	x := req.explained
	if x == nil || req.holders.walk.epoch != c.epoch {
		x = new(c.explain(q, req.Key))
	}
	if err := tx.addHolders(x, &req.holders); err != nil {
		req.explained = x
		return Explanation{}, err
	}
	req.explained = nil
	return *x, nil
}

// explain says everything of a key but who is in its way, see addHolders.
func (c *core) explain(q *queue, key string) Explanation {
	return Explanation{KeyInfo: c.keyInfo(q, key), Queue: q.name}
}

// Explain asks why a message is where it is.
type Explain struct {
	Queue string
	ID    ID

	leased    *leasedSearch
	search    *positionSearch
	explained *Explanation // its holders are being looked for
	holders   *holderSearch
}

// Explain says where a message is and what it waits for. The message is looked up
// beside the loop; the task waits for that.
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

// explainMessage says everything of a message but who is in its way.
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
		tx.park(nil, 0, false)
		return nil, ErrWouldBlock
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
	if before > 0 && (x.State == KeyReady || x.State == KeyNoConsumer) {
		x.Reason = fmt.Sprintf("%d messages of its key are before it; %s", before, x.Reason)
	}
	x.noteTTL()
	return x
}

// noteTTL adds that the message dies before it can be delivered, where that is known.
func (x *Explanation) noteTTL() {
	if end := x.Message.ExpiresAt; !end.IsZero() && x.ReadyAt.After(end) {
		x.Reason += "; its time to live ends before that"
	}
}

func (m *message) info(status string) *MessageInfo {
	i := &MessageInfo{
		ID: m.id, Status: status, Attempt: m.attempt, Deliveries: m.deliveries, EnqueuedAt: idTime(m.id), Consumer: m.consumer,
		Position: -1, Throttles: m.throttleKeys(), Cost: m.cost,
	}
	if status == StatusLeased {
		i.LeaseUntil = time.Unix(0, m.until)
	}
	if m.expires != 0 {
		i.ExpiresAt = time.Unix(0, m.expires)
	}
	return i
}

// find looks a message up and counts those that come before it.
type positionSearch struct {
	lookup
	leased map[ID]struct{} // leased messages of the keys it may belong to: they are not ready
	before int64
}

func (c *core) searchPosition(q *queue, id ID, leased map[ID]struct{}, t *Task) *positionSearch {
	f := &positionSearch{leased: leased}
	f.lookup = *c.newLookup(q, []ID{id}, resume(t))
	c.out.jobs = append(c.out.jobs, f)
	return f
}

// do looks the message up. It runs beside the loop, after the commit of the batch
// in which it was asked for.
func (f *positionSearch) do(store Store) {
	f.lookup.do(store)
	if f.err != nil || f.found[0] == nil || f.found[0].delayed {
		return
	}
	found := f.found[0]
	prefix := storage.AppendKeyPrefix(nil, f.no, found.key)
	_, f.err = readMessages(store, prefix, storage.AppendMessageKey(nil, f.no, found.key, found.m.rank, found.m.id), func(m foundMessage) bool {
		if _, isLeased := f.leased[m.m.id]; !isLeased && !m.delayed {
			f.before++
		}
		return f.before < positionMax
	})
}

// QueueStats returns the counts of one queue.
func (tx *Tx) QueueStats(name string) (Counts, error) {
	q, err := tx.core.queueNamed(name)
	if err != nil {
		return Counts{}, err
	}
	return q.counts(), nil
}

// ScanQueues walks over the queues in the order in which they were made, which
// recovery does not change: a cursor stays good across restarts. It returns the
// next cursor, 0 at the end. A page has at most count names and may have fewer,
// or none, before the end: deleted queues leave gaps, of which a page passes a
// bounded number.
func (tx *Tx) ScanQueues(cursor uint64, count int, match func(string) bool) (next uint64, names []string) {
	c := tx.core
	const gaps = 4096
	for steps := count + gaps; cursor < uint64(c.queues.nextNumber); cursor++ {
		if count <= 0 || steps <= 0 {
			return cursor, names
		}
		steps--
		if q := c.queues.byNumber[uint32(min(cursor, math.MaxUint32))]; q != nil {
			count--
			if match(q.name) {
				names = append(names, q.name)
			}
		}
	}
	return 0, names
}

// HasQueue reports whether there is a queue of that name.
func (tx *Tx) HasQueue(name string) bool { return tx.core.queues.byName[name] != nil }

// QueueMemory asks for the bytes of memory that a queue takes. What it has on disk only
// takes none. The sizes of payloads are those of the messages of up to Samples fairness
// keys, 0 for all of them.
type QueueMemory struct {
	Queue   string
	Samples int

	started                 bool
	epoch, cursor           uint64
	samples                 int
	keys                    int64 // bytes
	messages, seen, payload int64
}

const (
	mapEntryBytes = 48 // bytes of an entry of a map, about
	// memoryKeysPerUnit is how many keys count for a unit of work.
	memoryKeysPerUnit = 8
)

// QueueMemory estimates the bytes. Of a queue of very many keys it does so over several
// turns.
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
	req.cursor = q.roster.walkWhile(req.cursor, func(k *fairKey) bool {
		if yields = n%memoryKeysPerUnit == 0 && !tx.more(); yields {
			return false
		}
		n++
		if req.add(k) {
			c.spend(len(k.window) / memoryKeysPerUnit)
		}
		return true
	})
	if yields {
		return 0, tx.yield()
	}
	req.started = false
	messages := req.messages + q.leased
	total := int64(unsafe.Sizeof(*q)) + int64(len(q.name)) + mapEntryBytes + req.keys + messages*(int64(unsafe.Sizeof(message{}))+mapEntryBytes)
	if req.seen > 0 {
		total += req.payload * messages / req.seen
	}
	return total, nil
}

// add adds what a key takes, and reports whether it was one of the samples.
func (req *QueueMemory) add(k *fairKey) bool {
	req.keys += int64(unsafe.Sizeof(*k)) + int64(len(k.name)) + mapEntryBytes
	req.messages += int64(len(k.window))
	if req.Samples != 0 && req.samples == 0 {
		return false
	}
	req.samples--
	req.seen += int64(len(k.window))
	for _, m := range k.window {
		req.payload += int64(len(m.body))
	}
	return true
}
