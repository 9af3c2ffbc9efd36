package engine

import (
	"fmt"

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
// and their place. Messages that are leased or wait for their time, and those whose
// queue does not exist any more, stay.
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
	if p != nil && p.done && c.holds(&p.watch) {
		c.redriveFound(dlq, req, p)
		if p.next == nil || req.Count > 0 && req.moved >= req.Count {
			return req.moved, nil
		}
		req.cursor = p.next
	}
	req.page = c.readPage(dlq, req.Key, req.cursor, redrivePage, resume(tx.task))
	tx.park(nil, 0, false)
	return req.moved, ErrWouldBlock
}

// redriveFound moves the messages of a page.
func (c *core) redriveFound(dlq *queue, req *Redrive, p *page) {
	for i := range p.found {
		f := &p.found[i]
		if req.Count > 0 && req.moved >= req.Count {
			return
		}
		if c.locate(&p.watch, f) != ready {
			continue
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
		rec.Dead = nil
		c.move(c.extract(&p.watch, f), to, &rec)
		req.moved++
		dlq.totals.redriven++
	}
}
