package metrics

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/histogram"
)

// tally is what has happened in a queue, or in several: all figures of queues that only grow.
type tally struct {
	engine.Events
	// durations are the waits, then the leases by engine.Outcome; nil: there was none.
	durations [1 + engine.Outcomes]*histogram.Histogram
}

// tallyOf takes over the figures of a queue; the histograms are shared.
func tallyOf(f *engine.QueueFigures) tally {
	t := tally{Events: f.Events}
	t.durations[0] = f.Durations.Wait
	copy(t.durations[1:], f.Durations.Work[:])
	return t
}

// plus returns the sum of two tallies. It shares no histogram with them that it changes.
func (t *tally) plus(o *tally) tally {
	sum := *t
	sum.Events.Add(&o.Events)
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
	grown.Events.Grow(&all.Events, &parts.Events)
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
	for _, of := range [...]struct {
		id id
		n  uint64
	}{
		{queueEnqueued, t.Enqueued}, {queueDelivered, t.Delivered}, {queueAcked, t.Acked}, {queueNacked, t.Nacked}, {queueExpired, t.Expired},
		{queueDropped, t.Dropped}, {queueReleased, t.Released}, {queueRedriven, t.Redriven}, {queueCancelled, t.Cancelled}, {queuePurged, t.Purged},
		{queueDeduplicated, t.Deduplicated}, {queueReplaced, t.Replaced}, {queueTTLExpired, t.TTLExpired}, {queueUndelivered, t.Undelivered}, {queueRounds, t.Rounds}, {queueResults, t.Results},
	} {
		f.count(of.id, of.n, queue)
	}
	if redrives {
		f.count(queueRedriveMoved, t.Redriven, queue)
	}
	for i, reason := range engine.DeadReasons() {
		f.count(queueDeadLettered, t.DeadBy[i], queue.with(labelReason, reason))
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
