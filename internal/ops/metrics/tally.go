package metrics

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/histogram"
)

// tally is what has happened in a queue, or in several: all figures of queues that only grow.
type tally struct {
	counts [tallyCounts]uint64
	deadBy [len(engine.Counts{}.DeadBy)]uint64
	// durations are the waits, then the leases by engine.Outcome; nil: there was none.
	durations [1 + engine.Outcomes]*histogram.Histogram
}

const tallyCounts = 15

// tallyRedriven is the place of queueRedriven in tally.counts.
const tallyRedriven = 7

// tallyIDs are the metrics of tally.counts.
func tallyIDs() [tallyCounts]id {
	return [...]id{
		queueEnqueued, queueDelivered, queueAcked, queueNacked, queueExpired, queueDropped, queueReleased, queueRedriven, queueCancelled, queuePurged,
		queueDeduplicated, queueTTLExpired, queueUndelivered, queueRounds, queueResults,
	}
}

// tallyOf takes over the figures of a queue; the histograms are shared.
func tallyOf(f *engine.QueueFigures) tally {
	c := &f.Counts
	t := tally{
		counts: [...]uint64{
			c.Enqueued, c.Delivered, c.Acked, c.Nacked, c.Expired, c.Dropped, c.Released, c.Redriven, c.Cancelled, c.Purged,
			c.Deduplicated, c.TTLExpired, c.Undelivered, c.Rounds, c.Results,
		},
		deadBy: c.DeadBy,
	}
	t.durations[0] = f.Durations.Wait
	copy(t.durations[1:], f.Durations.Work[:])
	return t
}

// plus returns the sum of two tallies. It shares no histogram with them that it changes.
func (t *tally) plus(o *tally) tally {
	sum := *t
	for i, n := range o.counts {
		sum.counts[i] += n
	}
	for i, n := range o.deadBy {
		sum.deadBy[i] += n
	}
	for i, h := range o.durations {
		switch {
		case h == nil:
		case sum.durations[i] == nil:
			sum.durations[i] = h
		default:
			both := *sum.durations[i]
			both.Add(h)
			sum.durations[i] = &both
		}
	}
	return sum
}

// minus returns what a tally has beyond an earlier one of the same queues.
func (t *tally) minus(o *tally) tally {
	var rest tally
	return rest.grow(t, o)
}

// grow returns what all has and parts has not, and at least what t has: nothing goes back, even
// if parts were taken at a later time than all.
func (t *tally) grow(all, parts *tally) tally {
	grown := *t
	beyond := func(to *uint64, all, parts uint64) { *to = max(*to, all-min(parts, all)) }
	for i := range grown.counts {
		beyond(&grown.counts[i], all.counts[i], parts.counts[i])
	}
	for i := range grown.deadBy {
		beyond(&grown.deadBy[i], all.deadBy[i], parts.deadBy[i])
	}
	for i, h := range all.durations {
		switch part := parts.durations[i]; {
		case h == nil:
		case part == nil && grown.durations[i] == nil:
			grown.durations[i] = h
		default:
			var rest histogram.Histogram
			if grown.durations[i] != nil {
				rest = *grown.durations[i]
			}
			if part == nil {
				part = new(histogram.Histogram)
			}
			rest.Grow(h, part)
			grown.durations[i] = &rest
		}
	}
	return grown
}

// write writes the series of a queue, or of several.
func (t *tally) write(f *families, queue labels, redrives bool) {
	for i, id := range tallyIDs() {
		f.count(id, t.counts[i], queue)
	}
	if redrives {
		f.count(queueRedriveMoved, t.counts[tallyRedriven], queue)
	}
	for i, reason := range engine.DeadReasons() {
		f.count(queueDeadLettered, t.deadBy[i], queue.with(labelReason, reason))
	}
	if h := t.durations[0]; h != nil {
		f.observed(queueWait, h, queue)
	}
	for i, h := range t.durations[1:] {
		if h != nil {
			f.observed(queueWork, h, queue.with(labelOutcome, engine.Outcome(i).String()))
		}
	}
}
