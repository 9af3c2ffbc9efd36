package engine

import (
	"fmt"
	"sort"

	"github.com/faisca/fila/storage"
)

// Redrive asks to move messages of a dead-letter queue back.
type Redrive struct {
	DLQ   string
	Count int    // at most so many; 0: all
	Key   string // only those of this fairness key; "": of all
	To    string // where to; "": where each came from

	moved  int
	cursor []byte // where the next page starts; nil: at the beginning
	page   *page
}

// redrivePage bounds how many messages one turn moves; others are served in
// between. Each message moves atomically, the whole does not.
const redrivePage = 256

// Redrive moves dead messages to where they came from, ready at once, and
// returns how many it has moved. Their attempts start again; they keep their id
// and their place. Messages that are leased, or whose queue does not exist any
// more, stay.
//
// It goes through the queue page by page: each is read beside the loop (see
// page), and the task waits for it.
func (tx *Tx) Redrive(req *Redrive) (int, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return req.moved, err
	}
	dlq, err := c.queueNamed(req.DLQ)
	if err != nil {
		return req.moved, err
	}
	if !dlq.isDead() {
		return 0, fmt.Errorf("%w: %q is not a dead-letter queue", ErrInvalid, req.DLQ)
	}
	if req.To != "" {
		to, err := c.queueNamed(req.To)
		if err != nil {
			return req.moved, fmt.Errorf("TO: %w", err)
		}
		if to == dlq {
			return 0, fmt.Errorf("%w: TO %q is the dead-letter queue itself", ErrInvalid, req.To)
		}
	}
	p := req.page
	req.page = nil
	if p != nil && p.err != nil {
		return req.moved, fmt.Errorf("redrive %q: %w", req.DLQ, p.err)
	}
	if p != nil && p.changes == dlq.changes && p.epoch == c.epoch {
		c.redriveFound(dlq, req, p)
		if p.next == nil || req.Count > 0 && req.moved >= req.Count {
			return req.moved, nil
		}
		req.cursor = p.next
	}
	req.page = c.readPage(dlq, req.Key, req.cursor, tx.task)
	tx.park(nil, 0, false)
	return req.moved, ErrWouldBlock
}

// redriveFound moves the messages of a page.
func (c *core) redriveFound(dlq *queue, req *Redrive, p *page) {
	for _, f := range p.found {
		if req.Count > 0 && req.moved >= req.Count {
			return
		}
		var rec storage.Message
		if err := rec.Decode(f.m.body); err != nil {
			continue // reported by whoever reads it for delivery
		}
		name := req.To
		if name == "" && rec.Dead != nil {
			name = rec.Dead.Queue
		}
		to := c.queues[name]
		if to == nil || to == dlq {
			continue
		}
		m := c.takeFound(dlq, f)
		if m == nil {
			continue
		}
		k := m.key
		rec.Dead = nil
		c.move(m, to, &rec)
		c.settle(k)
		req.moved++
		dlq.totals.redriven++
	}
}

// page is a task with a stretch of a queue as the store holds it: for those who
// go through messages that need not be in memory.
type page struct {
	task     *Task // who waits for it
	epoch    uint64
	changes  uint64 // of the queue when the page was asked for
	queue    uint32
	from, to []byte
	limit    int

	found []foundMessage
	next  []byte // where the next page starts, nil: nowhere
	err   error
}

// readPage asks for the next messages of a queue, or of one of its keys.
func (c *core) readPage(q *queue, key string, cursor []byte, t *Task) *page {
	prefix := storage.AppendQueuePrefix(nil, q.no)
	if key != "" {
		prefix = storage.AppendKeyPrefix(nil, q.no, key)
	}
	p := &page{task: t, epoch: c.epoch, changes: q.changes, queue: q.no, from: prefix, to: storage.After(prefix), limit: redrivePage}
	if cursor != nil {
		p.from = cursor
	}
	c.beside = append(c.beside, p)
	return p
}

// do reads the page. It runs beside the loop, after the commit of the batch in
// which it was asked for.
func (p *page) do(store Store) {
	more, err := readMessages(store, p.from, p.to, func(f foundMessage) bool {
		p.found = append(p.found, f)
		return len(p.found) < p.limit
	})
	p.err = err
	if n := len(p.found); more && n > 0 {
		last := p.found[n-1]
		after := last.m.place.next()
		p.next = storage.AppendMessageKey(nil, p.queue, last.key, after.rank, after.id)
	}
}

// Apply lets the one who waits for the page go on.
func (p *page) Apply(tx *Tx) error {
	if p.task.wait != nil && p.epoch == tx.core.epoch {
		tx.core.run(p.task)
	}
	return nil
}

// takeFound takes a ready message that a page has shown out of its queue, or
// returns nil if it is not ready any more. A message behind its key's edge is as
// the page has it, unless something was removed there since: then the page is
// not used at all.
func (c *core) takeFound(q *queue, f foundMessage) *message {
	k := q.keys[f.key]
	if k == nil || f.delayed || c.leases[f.m.id] != nil {
		return nil
	}
	if !k.inWindow(f.m.place) {
		f.m.key = k
		q.changes++
		c.setBody(f.m, f.m.body)
		return f.m
	}
	i := sort.Search(len(k.window), func(i int) bool { return !k.window[i].place.less(f.m.place) })
	if i == len(k.window) || k.window[i].place != f.m.place {
		return nil
	}
	m := k.window[i]
	copy(k.window[i:], k.window[i+1:])
	k.window[len(k.window)-1] = nil
	k.window = k.window[:len(k.window)-1]
	c.refs--
	return m
}
