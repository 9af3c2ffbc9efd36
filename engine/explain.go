package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

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
	Holders     []Holder     // of the throttle it waits for, if that is full
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
}

// positionMax is where counting ends how many messages are before one.
const positionMax = 100_000

// ExplainKey says why a fairness key delivers or does not.
func (tx *Tx) ExplainKey(queue, key string) (Explanation, error) {
	c := tx.core
	q, err := c.queueNamed(queue)
	if err != nil {
		return Explanation{}, err
	}
	if err := c.checkKey(key); err != nil {
		return Explanation{}, err
	}
	return c.explain(q, key), nil
}

func (c *core) explain(q *queue, key string) Explanation {
	x := Explanation{KeyInfo: c.keyInfo(q, key), Queue: q.name}
	if x.State != KeyConcurrency {
		return x
	}
	for _, m := range c.leases {
		if slices.Contains(m.throttles, x.Throttle) {
			x.HolderCount++
			x.Holders = append(x.Holders, Holder{
				ID: m.id, Queue: m.key.queue.name, Key: m.key.name, Consumer: m.consumer, Until: time.Unix(0, m.until),
			})
		}
	}
	slices.SortFunc(x.Holders, func(a, b Holder) int {
		return cmp.Or(a.Until.Compare(b.Until), slices.Compare(a.ID[:], b.ID[:]))
	})
	x.Holders = x.Holders[:min(len(x.Holders), holdersMax)]
	return x
}

// Explain asks why a message is where it is.
type Explain struct {
	Queue string
	ID    ID

	find *find
}

// Explain says where a message is and what it waits for. A message that is on disk
// only is looked up beside the loop; the task waits for that.
func (tx *Tx) Explain(req *Explain) (Explanation, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return Explanation{}, err
	}
	if m := c.leases[req.ID]; m != nil && m.key.queue == q {
		x := c.explain(q, m.key.name)
		x.Message = m.info(StatusLeased)
		x.State, x.Reason = KeyLeased, fmt.Sprintf("a consumer holds it until its lease ends; it is delivery %d", m.deliveries)
		x.ReadyAt, x.Throttle, x.Holders, x.HolderCount = time.Unix(0, m.until), "", nil, 0
		return x, nil
	}
	f := req.find
	req.find = nil
	if f == nil || f.epoch != c.epoch {
		if req.find = c.startFind(q, req.ID, tx.task); req.find == nil {
			return Explanation{}, fmt.Errorf("%w: %s in %q", ErrNoMessage, req.ID, req.Queue)
		}
		tx.park(nil, 0, false)
		return Explanation{}, ErrWouldBlock
	}
	if f.err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", req.ID, f.err)
	}
	if f.m == nil {
		return Explanation{}, fmt.Errorf("%w: %s in %q", ErrNoMessage, req.ID, req.Queue)
	}
	return c.explainFound(q, f), nil
}

func (c *core) explainFound(q *queue, f *find) Explanation {
	x := c.explain(q, f.key)
	status := StatusReady
	if q.isDead() {
		status = StatusDead
	}
	if f.readyAt > 0 {
		x.State, x.Reason, x.ReadyAt = KeyDelayed, "it waits for its time", time.Unix(0, f.readyAt)
		x.Throttle, x.Holders, x.HolderCount = "", nil, 0
		status = StatusDelayed
	}
	x.Message = f.m.info(status)
	x.Message.EnqueuedAt = idTime(f.m.id)
	if status == StatusDelayed {
		x.Message.ReadyAt = x.ReadyAt
		return x
	}
	x.Message.Position = f.before
	if f.before > 0 && (x.State == KeyReady || x.State == KeyNoConsumer) {
		x.Reason = fmt.Sprintf("%d messages of its key are before it; %s", f.before, x.Reason)
	}
	return x
}

func (m *message) info(status string) *MessageInfo {
	i := &MessageInfo{
		ID: m.id, Status: status, Attempt: m.attempt, Deliveries: m.deliveries, EnqueuedAt: idTime(m.id), Consumer: m.consumer,
		Position: -1, Throttles: m.throttles, Cost: m.cost,
	}
	if status == StatusLeased {
		i.LeaseUntil = time.Unix(0, m.until)
	}
	return i
}

// find looks a message up by its id: the id holds its rank and a hash of its key,
// so that only the keys with that hash have to be asked.
type find struct {
	task  *Task
	epoch uint64
	queue uint32
	id    ID
	keys  []string        // that it may belong to
	held  map[ID]struct{} // leased messages of those keys: they are not ready

	key     string
	m       *message // nil: there is no such message
	readyAt int64    // when it is due, 0: it is ready
	before  int64
	err     error
}

func (c *core) startFind(q *queue, id ID, t *Task) *find {
	f := &find{task: t, epoch: c.epoch, queue: q.no, id: id, held: map[ID]struct{}{}}
	hash := idKeyHash(id)
	for name := range q.keys {
		if keyHash(name) == hash {
			f.keys = append(f.keys, name)
		}
	}
	if len(f.keys) == 0 {
		return nil
	}
	slices.Sort(f.keys)
	for _, m := range c.leases {
		if m.key.queue == q && slices.Contains(f.keys, m.key.name) {
			f.held[m.id] = struct{}{}
		}
	}
	c.beside = append(c.beside, f)
	return f
}

// do looks the message up. It runs beside the loop, after the commit of the batch
// in which it was asked for.
func (f *find) do(store Store) {
	p := place{rank: idRank(f.id), id: f.id}
	for _, name := range f.keys {
		mk := storage.MessageKey{Queue: f.queue, Key: name, Rank: p.rank, ID: p.id}
		from := mk.Append(nil)
		var found *foundMessage
		if _, f.err = readMessages(store, from, storage.After(from), func(m foundMessage) bool { found = &m; return false }); f.err != nil {
			return
		}
		if found == nil {
			continue
		}
		f.key, f.m = name, found.m
		if found.delayed {
			f.readyAt = found.readyAt
			return
		}
		prefix := storage.AppendKeyPrefix(nil, f.queue, name)
		_, f.err = readMessages(store, prefix, from, func(m foundMessage) bool {
			if _, leased := f.held[m.m.id]; !leased && !m.delayed {
				f.before++
			}
			return f.before < positionMax
		})
		return
	}
}

// Apply lets the one who asked go on.
func (f *find) Apply(tx *Tx) error {
	if f.task.wait != nil && f.epoch == tx.core.epoch {
		tx.core.run(f.task)
	}
	return nil
}
