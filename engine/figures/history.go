package figures

import "time"

// History records what queues did, at the first turn of each step (StepAt), before that turn has changed
// anything. It needs no timer: while there is no turn, nothing changes. Many queues are recorded in
// slices, over several turns.
type History struct {
	begun, done uint32  // the first step that is recorded, and the last; 0: none yet
	step        uint32  // that is being recorded, with those since done
	due         int64   // when the next step begins, Unix nanoseconds
	now         Numbers // of all queues together, when the step began
	all         line    // of all queues together
}

// Moment is what a queue, or all together, had done and held at one time.
type Moment struct {
	At time.Time
	Numbers
}

// Due reports whether the time of a step has come that is not recorded.
func (h *History) Due(now int64) bool { return now >= h.due }

// Begin begins to record a step. all are the counts of all queues together.
func (h *History) Begin(now int64, all Counts) { h.step, h.now = StepAt(now), all.numbers() }

// from returns the first step since which nothing has changed: what has changed since the last one that
// is recorded did so before the next step began.
func (h *History) from() uint32 {
	if h.begun == 0 {
		return h.step
	}
	return h.done + 1
}

// Record records a queue. A queue may come twice, as a purge gives it another number.
func (h *History) Record(q *Queue) {
	if q.recorded != h.step {
		q.recorded = h.step
		q.line.set(h.from(), q.numbers())
	}
}

// Finish ends a step: all queues are recorded.
func (h *History) Finish() {
	h.all.set(h.from(), h.now)
	if h.done, h.due = h.step, beginOf(h.step+1); h.begun == 0 {
		h.begun = h.step
	}
}

func (q *Queue) numbers() Numbers {
	e := &q.events
	return Numbers{Flow{e[Enqueued], e[Delivered], e[Acked], e[Nacked], e[Expired]}, q.byStatus(q.Dead)}
}

// All returns the moments of all queues together in the last ten minutes, the oldest first. all are their
// present counts.
func (h *History) All(all Counts) []Moment { return h.moments(&h.all, all.numbers(), h.begun) }

// Of returns those of a queue that was created at a time.
func (h *History) Of(q *Queue, created int64) []Moment {
	return h.moments(&q.line, q.numbers(), max(h.begun, StepAt(created)))
}

// Rates returns how many messages of a queue that was created at a time were enqueued and delivered in a second, over the
// last ten to twenty seconds.
func (h *History) Rates(q *Queue, created, now int64) (in, out float64) {
	if h.begun == 0 {
		return 0, 0
	}
	step := max(h.begun, h.done-1)
	n := q.numbers()
	was := q.line.at(step, n)
	seconds := max(float64(now-max(beginOf(step), created))/float64(time.Second), 1)
	return float64(n.Enqueued-was.Enqueued) / seconds, float64(n.Delivered-was.Delivered) / seconds
}

// Lately returns what has happened in a queue in the last ten minutes.
func (h *History) Lately(q *Queue) Flow {
	n := q.numbers()
	was := q.line.at(max(h.begun, h.done-min(h.done, Steps-1)), n)
	n.Enqueued -= was.Enqueued
	n.Delivered -= was.Delivered
	n.Acked -= was.Acked
	n.Nacked -= was.Nacked
	n.Expired -= was.Expired
	return n.Flow
}

func (h *History) moments(l *line, now Numbers, first uint32) (list []Moment) {
	for step := max(first, h.done-Steps+1); step <= h.done && h.begun != 0; step++ {
		list = append(list, Moment{time.Unix(0, beginOf(step)), l.at(step, now)})
	}
	return list
}
