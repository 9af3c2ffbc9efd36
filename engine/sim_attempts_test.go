package engine

import (
	"fmt"
	"slices"

	"github.com/faisca/fila/engine/internal/failures"
	"github.com/faisca/fila/storage"
)

// The list of the attempts of a message in the simulation. A message that fails has each of its attempts
// in it once, also after crashes, in the dead-letter queue and after a redrive, until ten newer ones displace it.

// nackText returns an error that no other nack has.
func (o *oracle) nackText() string {
	o.nacks++
	return fmt.Sprint("no luck ", o.nacks)
}

// nackedWith notes a nack whose reply has come.
func (o *oracle) nackedWith(id ID, text string, err error) {
	if err == nil {
		o.nackTexts[id] = text
	}
}

// attemptsOf verifies the lists of the leased messages.
func (o *oracle) attemptsOf(c *core) {
	for id, m := range c.leases.byID {
		var list []Failure
		if m.failure != nil {
			list = m.failure.List
		}
		o.attemptsAre(m, list)
		text, nacked := o.nackTexts[id]
		if nacked && len(list) < failures.Max && !slices.ContainsFunc(list, func(f Failure) bool { return f.Error == text }) {
			o.fail("message %s was nacked with %q, which is missing in %v", id, text, list)
		}
	}
}

// attemptsAre verifies that a list has each attempt once and in order, and ends with the last one.
func (o *oracle) attemptsAre(m *message, list []Failure) {
	if len(list) > failures.Max {
		o.fail("message %s has %d attempts in its list", m.id, len(list))
	}
	for i := range list {
		f := &list[i]
		back := int64(o.setBack) // a lease or an attempt may be from before that
		if f.At+back < f.LeasedAt || i > 0 && (f.Attempt != 1 && f.Attempt != list[i-1].Attempt+1 || f.At+back < list[i-1].At) {
			o.fail("message %s: attempt %d of the list does not follow: %v", m.id, i, list)
		}
	}
	if n := len(list); m.attempt > 1 && (n == 0 || list[n-1].Attempt != m.attempt-1 || list[n-1].At != m.failure.Last) {
		o.fail("message %s is at attempt %d, its list is %v", m.id, m.attempt, list)
	}
	if m.attempt == 1 && m.failure.Current() != nil {
		o.fail("message %s has not failed since it came into its queue, and has the error %q", m.id, m.failure.Text)
	}
}

// breakFailures loses the last failure of some records, or writes it twice.
func (s *crashStore) breakFailures(value []byte) []byte {
	var rec storage.Attempt
	if err := rec.Decode(value); err != nil || len(rec.Failures) == 0 || s.rng.IntN(4) > 0 {
		return value
	}
	n := len(rec.Failures)
	if s.mutant == failureTwice {
		rec.Failures = append(rec.Failures, rec.Failures[n-1])
	} else {
		rec.Failures = rec.Failures[:n-1]
	}
	return rec.Append(nil)
}
