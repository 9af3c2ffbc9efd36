package figures

import (
	"time"

	"github.com/faisca/fila/internal/histogram"
)

// Outcome is how a lease has ended, where its consumer had the message until then.
type Outcome uint8

// The outcomes.
const (
	OutcomeAcked    Outcome = iota
	OutcomeNacked           // ended as failed by its consumer
	OutcomeExpired          // the visibility timeout has passed
	OutcomeReleased         // given back
	Outcomes        = 4     // the number of outcomes
)

// String returns the word for the outcome.
func (o Outcome) String() string {
	return [...]string{OutcomeAcked: "acked", OutcomeNacked: "nacked", OutcomeExpired: "expired", OutcomeReleased: "released"}[o]
}

// Durations are how long the messages of a queue waited and how long they were leased, since the
// start of the broker. A histogram is nil while it has no duration.
type Durations struct {
	Wait *histogram.Histogram           // from being ready until the delivery
	Work [Outcomes]*histogram.Histogram // from the delivery until the end of the lease
}

// observe adds a duration to a histogram that is made when it is needed.
func observe(h **histogram.Histogram, d time.Duration) {
	if *h == nil {
		*h = new(histogram.Histogram)
	}
	(*h).Observe(d)
}

// Add adds the durations of another queue.
func (d *Durations) Add(o *Durations) {
	add := func(to **histogram.Histogram, from *histogram.Histogram) {
		if from == nil {
			return
		}
		if *to == nil {
			*to = new(histogram.Histogram)
		}
		(*to).Add(from)
	}
	add(&d.Wait, o.Wait)
	for i := range o.Work {
		add(&d.Work[i], o.Work[i])
	}
}

// Quantile summarizes a histogram.
type Quantile struct {
	Count    uint64
	P50, P99 time.Duration // what half, and 99 %, of the durations do not exceed
}

func summary(h *histogram.Histogram) Quantile {
	if h == nil {
		return Quantile{}
	}
	return Quantile{Count: h.Count(), P50: h.Quantile(0.5), P99: h.Quantile(0.99)}
}

// Summaries returns those of the waiting times, and of the leases of all outcomes together.
func (d *Durations) Summaries() (wait, work Quantile) {
	var all histogram.Histogram
	for _, h := range d.Work {
		if h != nil {
			all.Add(h)
		}
	}
	return summary(d.Wait), summary(&all)
}
