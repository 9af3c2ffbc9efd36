package engine

import (
	"bytes"
	"errors"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Progress, and what is known of messages that are done, in the simulation. In a part of the seeds, the queues keep what
// is done for longer than a run. What was acked is then known, until its queue is purged, and a message that was shown as
// done is never seen again as another one.

// doneOracle is the oracle's record of messages that are done.
type doneOracle struct {
	keeps bool
	in    map[ID]string // messages whose ack was answered, with the queue that acked
	shown map[ID]bool   // messages that a client was shown as done
}

func newDoneOracle() doneOracle {
	return doneOracle{in: map[ID]string{}, shown: map[ID]bool{}}
}

// keepDone returns the KEEPDONE of the queues.
func (s *sim) keepDone() uint64 {
	s.oracle.done.keeps = s.w.steps%2 == 0 || s.mutant == doneWrittenApart
	if !s.oracle.done.keeps {
		return 0
	}
	return queueset.MillisMax
}

// ended records that an ack was answered. What is acked beside a purge does not count.
func (o *oracle) ended(m *oracleMsg, d *Delivery) {
	if o.done.keeps && !o.beingPurged(m.tag) && (d.Queue == "a" || d.Queue == "b") {
		o.done.in[m.id] = d.Queue
	}
}

// shownDone checks a message that is shown as done.
func (o *oracle) shownDone(v *View, m *oracleMsg) {
	o.done.shown[v.ID] = true
	switch {
	case !o.done.keeps:
		o.fail("%s was shown as done in a queue that does not keep it", m.tag)
	case o.stored[m.tag] == m && m.asking == 0 && !m.perhapsGone:
		o.fail("%s was shown as done, and no client has acked it", m.tag)
	case v.Deliveries == 0 || v.Attempt == 0 || v.AckedAt.Add(o.setBack).Before(v.FirstLeasedAt) || tagKey(m.tag) != v.Key:
		o.fail("%s was shown as done: attempt %d, delivery %d, leased first at %v and acked at %v in the key %q", m.tag, v.Attempt, v.Deliveries, v.FirstLeasedAt, v.AckedAt, v.Key)
	}
}

// tagKey returns the fairness key of a message.
func tagKey(tag string) string {
	_, rest, _ := bytes.Cut([]byte(tag), []byte{'/'})
	return string(rest[:bytes.IndexByte(rest, '/')])
}

// walkedDone checks a complete walk through what is done.
func (o *oracle) walkedDone(w *walk) {
	for id, queue := range w.ends {
		if queue == w.queue && o.done.in[id] == queue && !w.seen[id] {
			o.fail("%s was done when the walk began, and was not shown", o.byID[id].tag)
		}
	}
}

// commitEndsFirst is the commit of the mutant that writes the records of ends before their batch.
func (s *crashStore) commitEndsFirst(b *storage.Batch, sync bool) error {
	var ends storage.Batch
	_ = b.Each(func(r storage.Record) error {
		if r.Op == storage.OpPut && r.Family == storage.Results {
			ends.Put(r.Family, bytes.Clone(r.Key), bytes.Clone(r.Value))
		}
		return nil
	})
	err := s.Memory.Commit(&ends, sync)
	if err == nil && ends.Len() > 0 && s.rng.Float64() < 10*s.chance {
		panic(errCrash)
	}
	return errors.Join(err, s.Memory.Commit(b, sync))
}

// progress returns what a client says about a delivery with an extension. It begins with the receipt.
func (s *sim) progress(d *Delivery) (o ExtendOptions) {
	if s.rng.IntN(3) > 0 {
		o.Progress = new(d.Receipt.String())
	}
	return o
}

// said records that an extension was answered.
func (o *oracle) said(d *Delivery, with ExtendOptions) {
	if m := o.current(d); m != nil && with.Progress != nil {
		m.progress = *with.Progress
	}
}

// shownProgress checks the progress of a message that is shown. held says that a client is known to hold its lease.
func (o *oracle) shownProgress(v *View, held bool) {
	m := o.byID[v.ID]
	if v.Progress == "" {
		if held && m.progress != "" {
			o.fail("%s was shown without its progress, %q", m.tag, m.progress)
		}
		return
	}
	r, err := ParseReceipt([]byte(v.Progress))
	if err != nil || r.ID != v.ID || v.Status != StatusLeased || held && r != m.receipt {
		o.fail("%s is %s, and was shown with the progress %q", m.tag, v.Status, v.Progress)
	}
}
