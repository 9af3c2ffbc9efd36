package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/internal/queueset"
)

// Recurring messages in the simulation. An entry for each CatchUp rule enqueues to a queue
// of its own, whose messages clients lease and ack. Each message names its tick, so that a
// second message for a tick is detected. The messages of the entry that makes up for nothing have a
// unique id, so that there is one of them at a time.

const (
	simCronQueue = "c"
	simCronEvery = time.Minute // fewer ticks in an hour than cron.CountMax
)

// cronOracle records the message of each tick.
type cronOracle struct {
	began int64
	until int64 // last time at which the clock was set back; 0: never
	seen  map[string]map[int64]ID
	hand  []*Delivery
	alone ID          // the newest message with the unique id
	acked map[ID]bool // of these, those that a client has tried to ack
	lossy bool        // power was lost while not every write was synced

	pausing bool                  // entries are paused and resumed in this run
	pauses  map[string]*cronPause // by entry
}

// cronPause is what is known of the pauses of an entry.
type cronPause struct {
	certain [][2]int64 // from the reply to a pause until the request to resume: no tick in between enqueues anything
	from    int64      // of a pause that goes on, as far as clients know; 0: none
	resumes int        // requests to resume so far
	open    int        // of them, those without a reply
}

// resumed notes a request to resume at a time of the calendar.
func (p *cronPause) resumed(now int64) {
	if p.from > 0 {
		p.certain = append(p.certain, [2]int64{p.from, now})
	}
	p.from = 0
	p.resumes++
}

// crashed forgets requests that will have no reply.
func (o *cronOracle) crashed() {
	for _, p := range o.pauses {
		p.open = 0
	}
}

// powerLost forgets messages that may be lost: their ticks may repeat.
func (o *cronOracle) powerLost() {
	o.lossy = true
	for _, seen := range o.seen {
		clear(seen)
	}
	for _, p := range o.pauses {
		*p = cronPause{}
	}
}

func (s *sim) simCron(rule CatchUp) *Cron {
	cr := &Cron{
		Name: rule.String(), Expression: "@every " + simCronEvery.String(), CatchUp: rule,
		Message: Enqueue{Queue: simCronQueue, Key: rule.String(), Payload: []byte("cron")},
	}
	if rule == CatchUpAll && s.mutant != tickFree {
		cr.Message.Budgets = []string{simTicks}
	}
	if rule == CatchUpNone {
		cr.Message.Unique = rule.String()
	}
	return cr
}

func (s *sim) setUpCron() error {
	s.cron = cronOracle{began: s.step.now.UnixNano(), seen: map[string]map[int64]ID{}, acked: map[ID]bool{}, pauses: map[string]*cronPause{}}
	s.cron.pausing = s.w.steps%4 == 1 || s.mutant == pauseNotWritten
	var errs [4]error
	depth := uint64(s.rng.IntN(2)) << 20 // none, or a limit that is never reached but needs counts
	s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
		if err := openGate(tx, simTicks, false, 100); err != nil {
			return err
		}
		errs[0] = tx.CreateQueue(simCronQueue, QueueOptions{Given: queueset.Given{queueset.MaxAttempts: 0, queueset.Visibility: 300, queueset.MaxDepth: depth}, NoDLQ: true})
		return nil
	})})
	for rule := range CatchUpAll + 1 {
		cr := s.simCron(rule)
		s.cron.seen[cr.Name], s.cron.pauses[cr.Name] = map[int64]ID{}, &cronPause{}
		if err := s.step.PrepareCron(cr); err != nil {
			return err
		}
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error { errs[1+rule] = tx.SetCron(cr); return nil })})
	}
	return errors.Join(errs[:]...)
}

// pauseCron pauses or resumes an entry. The mutant pauseNotWritten does so in memory alone.
func (s *sim) pauseCron(cl *simClient) {
	name, paused := CatchUp(s.rng.IntN(3)).String(), s.rng.IntN(2) == 0 //nolint:gosec // small
	p := s.cron.pauses[name]
	if !paused {
		p.resumed(s.step.core.calendar())
		p.open++
	}
	resumes := p.resumes
	s.oracle.trace("client %d pauses %s: %v", cl.client.ID, name, paused)
	s.submit(cl, func(tx *Tx) error {
		if s.mutant == pauseNotWritten {
			c := tx.core
			c.cron.Pause(c.cron.Get(name), paused, c.calendar())
			return nil
		}
		_, err := tx.PauseCron(name, paused)
		return err
	}, func(err error) {
		s.noRefusal("pause")(err)
		switch {
		case !paused:
			p.open = max(p.open-1, 0)
		case err == nil && p.open == 0 && resumes == p.resumes && p.from == 0:
			p.from = s.step.core.calendar()
		}
	})
}

// mayTick reports whether a tick did not fall into a pause.
func (s *sim) mayTick(name string, tick int64) bool {
	p := s.cron.pauses[name]
	for _, c := range p.certain {
		if c[0] < tick && tick < c[1] && c[0] > s.cron.until {
			return false
		}
	}
	return p.from == 0 || tick <= p.from || p.from <= s.cron.until
}

// actCron leases or acks messages of ticks, sets an entry again without a change, or pauses or resumes one.
func (s *sim) actCron(cl *simClient) {
	switch n := s.rng.IntN(10); {
	case n == 0 && s.cron.pausing && s.rng.IntN(2) == 0:
		s.pauseCron(cl)
	case n == 0:
		cr := s.simCron(CatchUp(s.rng.IntN(3))) //nolint:gosec // small
		if err := s.step.PrepareCron(cr); err != nil {
			s.oracle.fail("prepare: %v", err)
		}
		s.submit(cl, func(tx *Tx) error { return tx.SetCron(cr) }, func(err error) {
			if !errors.Is(err, ErrNoBudget) {
				s.noRefusal("cron")(err)
			}
		})
	case n == 1 && s.mutant != expiryNotUnderLoad:
		s.pass(time.Duration(s.rng.IntN(90)) * time.Second)
	case n < 6 && len(s.cron.hand) > 0:
		d := s.cron.hand[0]
		s.cron.hand = s.cron.hand[1:]
		s.ackCron(cl, d)
	default:
		s.leaseCron(cl)
	}
}

func (s *sim) ackCron(cl *simClient, d *Delivery) {
	s.cron.acked[d.Receipt.ID] = true
	s.submit(cl, func(tx *Tx) error { _, err := tx.Ack(simCronQueue, []Receipt{d.Receipt}); return err }, s.noRefusal("ack"))
}

func (s *sim) noRefusal(what string) func(error) {
	return func(err error) {
		if err != nil && !refusal(err) {
			s.oracle.fail("%s: %v", what, err)
		}
	}
}

func (s *sim) leaseCron(cl *simClient) {
	var ds []*Delivery
	req := &LeaseRequest{Queues: []string{simCronQueue}, Count: 20, Block: -1}
	s.submit(cl, func(tx *Tx) (err error) {
		ds, err = tx.Lease(req)
		s.gatesOpen(tx, ds)
		return err
	}, func(err error) {
		s.noRefusal("lease")(err)
		if err != nil {
			return // the deliveries reached no client, and their ticks may repeat
		}
		for _, d := range ds {
			if _, err := s.step.Load([]*Delivery{d}); err != nil {
				continue // its lease has ended, and another client has acked it
			}
			s.cronDelivered(d)
			s.cron.hand = append(s.cron.hand, d)
		}
	})
}

func (s *sim) cronDelivered(d *Delivery) {
	tick, id := tickOf(d).UnixNano(), d.Receipt.ID
	seen := s.cron.seen[d.Key]
	s.oracle.trace("tick %v of %s is %s", time.Unix(0, tick).UTC(), d.Key, id)
	switch {
	case seen == nil || (tick-s.cron.began)%int64(simCronEvery) != 0 || tick <= s.cron.began:
		s.oracle.fail("%s has no tick at %v", d.Key, time.Unix(0, tick).UTC())
	case seen[tick] != ID{} && seen[tick] != id:
		s.oracle.fail("the tick at %v of %s made both %s and %s", time.Unix(0, tick).UTC(), d.Key, seen[tick], id)
	case !s.mayTick(d.Key, tick):
		s.oracle.fail("%s was paused at %v, and has ticked", d.Key, time.Unix(0, tick).UTC())
	case id.Nanos() < tick:
		s.oracle.fail("the tick at %v of %s made a message at %v", time.Unix(0, tick).UTC(), d.Key, time.Unix(0, id.Nanos()).UTC())
	}
	seen[tick] = id
	if d.Key != CatchUpNone.String() {
		return
	}
	if before := s.cron.alone; before != (ID{}) && before != id && !s.cron.acked[before] && !s.cron.lossy {
		s.oracle.fail("%s and %s have one unique id", before, id)
	}
	s.cron.alone = id
}

// endCron ends the run for recurring messages, without faults: every due tick must have
// enqueued one message, or have been given up by the rule.
func (s *sim) endCron(cl *simClient) error {
	resume := &Task{Call: callFunc(func(tx *Tx) error {
		var errs []error
		for name, p := range s.cron.pauses {
			p.resumed(s.step.core.calendar())
			_, err := tx.PauseCron(name, false)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})}
	s.step.Do(resume)
	if err := resume.Err(); err != nil {
		return err
	}
	for range 3 { // missed and due ticks enqueue messages
		s.pass(simCronEvery)
	}
	infos := map[string]CronInfo{}
	var err error
	s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
		for name := range s.cron.seen {
			infos[name], _ = tx.Cron(name)
			_, e := tx.DeleteCron(name)
			err = errors.Join(err, e)
		}
		return nil
	})})
	for left, turns := int64(1), 0; left > 0 && err == nil; turns++ {
		if turns > 10_000 {
			return fmt.Errorf("the queue of ticks does not drain, %d left: %s", left, s.describe())
		}
		s.pass(time.Second) // leases of vanished clients expire
		if turns%100 == 99 {
			s.openGates(cl)   // again: a task queued behind a wait may have removed a budget
			s.pass(time.Hour) // also those from before the clock was set back, by an hour each time
		}
		s.leaseCron(cl)
		for _, d := range s.cron.hand {
			s.ackCron(cl, d)
		}
		s.cron.hand = nil
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
			n, e := tx.QueueStats(simCronQueue)
			left, err = n.Ready+n.Leased+n.Delayed, errors.Join(err, e)
			return nil
		})})
	}
	for name, i := range infos {
		seen := s.cron.seen[name]
		if all := (i.NextAt.UnixNano()-s.cron.began)/int64(simCronEvery) - 1; uint64(all) != i.Fired+i.Missed+i.Skipped && (!s.cron.pausing || uint64(all) < i.Fired+i.Missed+i.Skipped) {
			s.oracle.fail("%s had %d ticks, fired %d, missed %d and skipped %d", name, all, i.Fired, i.Missed, i.Skipped)
		}
		if uint64(len(seen)) != i.Fired && !s.cron.lossy {
			s.oracle.fail("%s fired %d times, and %d ticks were seen", name, i.Fired, len(seen))
		}
		last := i.NextAt.Add(-simCronEvery).UnixNano()
		// Ticks from before the clock was set back are not checked: one may have been
		// skipped for another that was due then and now is in the future.
		if i.CatchUp != CatchUpNone && last > max(s.cron.began, s.cron.until) && !s.cron.lossy && seen[last] == (ID{}) {
			s.oracle.fail("%s has not fired at %v, its last tick", name, time.Unix(0, last).UTC())
		}
		if i.CatchUp == CatchUpAll && i.Missed > 0 {
			s.oracle.fail("%d ticks of %s were missed", i.Missed, name)
		}
		if i.LastError != "" {
			err = errors.Join(err, fmt.Errorf("%s: %s", name, i.LastError))
		}
	}
	return err
}

// pass advances the time.
func (s *sim) pass(d time.Duration) {
	if s.held != nil || s.replaced {
		return
	}
	s.step.Advance(d)
	s.oracle.now = s.step.now
	s.settleReplies()
}
