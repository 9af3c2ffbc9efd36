package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Signals in the simulation. Clients add to a few signals, read and remove them; queue b records
// signals of its messages. Values are positive, so what is uncertain makes a sum a range: between
// the additions that must be there and those that may be.
//
//	submitted ──answered──▶ certain ──written: an ADD at its reply, others by a checkpoint──▶ kept
//	    └───────────────crash, failed commit, a removal that is not answered──────┴──▶ maybe (unless kept)
//
// A later read may tell which of the additions that are maybe there are.

// signalOracle knows of each signal what was added to it.
type signalOracle struct {
	by     map[string]*simSignal // by subject and name
	evicts bool                  // the limit is low: a signal may be gone at any time
	core   *core
	epoch  uint64 // of the core: it has recovered when this changes
}

// simSignal is what the clients know of a signal.
type simSignal struct {
	adds    []*simAdd // since the last removal
	asked   int       // how often a removal was asked for, or decided
	removed bool      // since the last sync
	loose   bool      // a power loss may have brought back what was removed: any sum is right
}

// simAdd is an addition that a client has asked for.
type simAdd struct {
	tag     string // of the message, for what the engine records
	v       float64
	order   int       // of the engine's decision; 0: it has not decided
	applied time.Time // the turn's
	at      time.Time // AT; zero: not given

	answered time.Time // zero: not yet
	ended    bool      // there will be no answer
	maybe    bool      // it may have been lost, or removed
	kept     bool      // no crash of the process takes it
	synced   bool      // nor one of the machine
}

func (a *simAdd) certain() bool { return !a.answered.IsZero() && !a.maybe }

// of returns a signal, which the clients may not know yet.
func (o *signalOracle) of(subject, name string) *simSignal {
	k := subject + " " + name
	if o.by[k] == nil {
		o.by[k] = &simSignal{}
	}
	return o.by[k]
}

// bounds returns the range of the sum.
func (s *simSignal) bounds() (least, most float64) {
	for _, a := range s.adds {
		if most += a.v; a.certain() {
			least += a.v
		}
	}
	return least, most
}

// recorded returns the signal that counts the messages of a tag, nil if their queue records none.
func (o *signalOracle) recorded(tag, name string) *simSignal {
	if parts := strings.Split(tag, "/"); parts[0] == "b" {
		return o.of(parts[1], name)
	}
	return nil
}

// asked notes that a message may be enqueued or acked, which queue b records.
func (o *signalOracle) asked(tag, name string) {
	if s := o.recorded(tag, name); s != nil {
		s.adds = append(s.adds, &simAdd{tag: tag, v: 1})
	}
}

// resolved notes the answer: the message was enqueued or acked, or certainly not.
func (o *signalOracle) resolved(tag, name string, done bool, now time.Time) {
	s := o.recorded(tag, name)
	if s == nil {
		return
	}
	i := slices.IndexFunc(s.adds, func(a *simAdd) bool { return a.tag == tag && a.answered.IsZero() && !a.ended })
	switch {
	case i < 0: // it was asked for before a crash
	case done:
		s.adds[i].answered = now
	default:
		s.adds = slices.Delete(s.adds, i, i+1)
	}
}

// each visits all additions.
func (o *signalOracle) each(visit func(a *simAdd)) {
	for _, s := range o.by {
		for _, a := range s.adds {
			visit(a)
		}
	}
}

// follow notices that the memory of a core was rebuilt after a failed commit.
func (o *signalOracle) follow(c *core) {
	if o.core != c || o.epoch != c.epoch {
		o.core, o.epoch = c, c.epoch
		o.each(func(a *simAdd) { a.maybe = a.maybe || !a.kept })
	}
}

// recovered notes a crash or a recovery in place: what was not kept may be lost.
func (o *signalOracle) recovered() {
	o.each(func(a *simAdd) { a.maybe = a.maybe || !a.kept })
}

// crashed notes a crash: what was not answered will not be.
func (o *signalOracle) crashed() { o.each(func(a *simAdd) { a.ended = true }) }

// synced notes a sync of the store.
func (o *signalOracle) synced() {
	o.each(func(a *simAdd) { a.synced = a.kept })
	for _, s := range o.by {
		s.removed = false
	}
}

// powerLost notes that what was not synced may be lost, removals as well.
func (o *signalOracle) powerLost() {
	o.each(func(a *simAdd) { a.kept = a.kept && a.synced })
	for _, s := range o.by {
		s.loose = s.loose || s.removed
	}
}

// keep notes that what was answered until a time is written.
func (o *signalOracle) keep(until time.Time, synced bool) {
	o.each(func(a *simAdd) {
		if a.certain() && !a.answered.After(until) {
			a.kept = true
			a.synced = a.synced || synced
		}
	})
}

// withSignals returns the options of a queue that records signals.
func withSignals(o QueueOptions) QueueOptions {
	o.Given = maps.Clone(o.Given)
	o.Given[queueset.Signals] = 1
	return o
}

// minuteEarlier changes the time in the record of a signal.
func minuteEarlier(value []byte) []byte {
	var rec storage.Signal
	if err := rec.Decode(value); err != nil {
		return value
	}
	rec.At = max(rec.At-int64(time.Minute), 0)
	return rec.Append(nil)
}

// setUpSignals chooses the settings of a run.
func (s *sim) setUpSignals() {
	s.cfg.SignalCheckpoint = time.Duration(100+s.rng.IntN(2000)) * time.Millisecond
	s.oracle.signals = signalOracle{by: map[string]*simSignal{}}
	if s.rng.IntN(8) == 0 && s.mutant == noMutant {
		s.cfg.Limits.Signals, s.oracle.signals.evicts = 1+s.rng.IntN(8), true
	}
}

// checkpointed notes what a checkpoint must have written by now: all that is older than its
// interval, if the engine has had its turns and its commits. A turn with a small budget leaves a part
// of it to the next one.
func (s *sim) checkpointed() {
	c := s.step.core
	s.oracle.signals.follow(c)
	if s.w.lazy == 0 && !s.failing && s.step.flight == nil && c.out.batch.Len() == 0 && c.health.failed == nil && c.now == s.step.now.UnixNano() && c.signals.next(c) > c.now {
		s.oracle.signals.keep(s.step.now.Add(-s.cfg.SignalCheckpoint), s.w.sync == SyncAlways)
	}
}

// actSignals runs a random command about signals.
func (s *sim) actSignals(cl *simClient) {
	subject, name := fmt.Sprintf("s%d", s.rng.IntN(2)), fmt.Sprintf("n%d", s.rng.IntN(2))
	switch n := s.rng.IntN(20); {
	case n < 9:
		s.addSignal(cl, subject, name)
	case n < 13:
		s.readSignal(cl, subject, name)
	case n < 18:
		s.readSignal(cl, fmt.Sprintf("k%d", s.rng.IntN(s.w.keys)), []string{signalEnqueued, signalAcked}[s.rng.IntN(2)])
	default:
		s.removeSignals(cl, subject, name)
	}
}

func (s *sim) addSignal(cl *simClient, subject, name string) {
	a := &simAdd{v: float64(1 + s.rng.IntN(9))}
	req := &SignalAdd{Subject: subject, Name: name, Value: a.v}
	if s.rng.IntN(4) == 0 {
		a.at = s.step.now.Add(-time.Duration(s.rng.IntN(7200)) * time.Second).Truncate(time.Millisecond)
		req.AtMs = new(a.at.UnixMilli())
	}
	sig := s.oracle.signals.of(subject, name)
	sig.adds = append(sig.adds, a)
	s.submit(cl, func(tx *Tx) error {
		a.order, a.applied = s.decisions, tx.Now()
		return tx.AddSignal(req)
	}, func(err error) {
		s.oracle.trace("added %v to %s of %s: %v", a.v, name, subject, err)
		s.noRefusal("signal")(err)
		if a.answered, a.kept, a.synced = s.step.now, true, s.w.sync == SyncAlways; err != nil {
			a.answered, a.kept, a.maybe, a.ended = time.Time{}, false, true, true
		}
	})
}

// removeSignals removes a signal, or both of a subject.
func (s *sim) removeSignals(cl *simClient, subject, name string) {
	all := []*simSignal{s.oracle.signals.of(subject, name)}
	if s.rng.IntN(3) == 0 {
		all, name = []*simSignal{s.oracle.signals.of(subject, "n0"), s.oracle.signals.of(subject, "n1")}, ""
	}
	uncertain := func() (least, most float64) {
		for _, sig := range all {
			l, m := sig.bounds()
			least, most = least+l, most+m
			for _, a := range sig.adds {
				a.maybe = true
			}
			sig.removed = true
			sig.asked++
		}
		return least, most
	}
	uncertain()
	n, order, least, most := 0, 0, 0.0, 0.0
	s.submit(cl, func(tx *Tx) (err error) {
		s.oracle.signals.follow(tx.core)
		order = s.decisions
		least, most = uncertain()
		n, err = tx.DeleteSignals(subject, name)
		return err
	}, func(err error) {
		s.oracle.trace("removed %d, %q of %s, of a sum from %v to %v: %v", n, name, subject, least, most, err)
		s.noRefusal("signal")(err)
		if err != nil {
			return
		}
		for _, sig := range all {
			if most == 0 && n > 0 && !sig.loose && len(all) == 1 {
				s.oracle.fail("%d signals were removed, and there was none", n)
			}
			sig.loose, sig.removed = false, true // a sync before this was perhaps one before the commit
			sig.adds = slices.DeleteFunc(sig.adds, func(a *simAdd) bool { return a.order > 0 && a.order < order })
		}
	})
}

// readSignal reads a signal and compares.
func (s *sim) readSignal(cl *simClient, subject, name string) {
	sig, o := s.oracle.signals.of(subject, name), &s.oracle.signals
	var list []SignalInfo
	var adds []*simAdd // that there are when the engine answers
	var sure []simAdd  // the same, as they are then, if all are certain
	least, most, epoch, loose, removals := 0.0, 0.0, uint64(0), false, 0
	var now time.Time
	s.submit(cl, func(tx *Tx) (err error) {
		o.follow(tx.core)
		epoch, now, loose, removals = o.epoch, tx.Now(), sig.loose, sig.asked
		least, most = sig.bounds()
		adds, sure = slices.Clone(sig.adds), nil
		if !slices.ContainsFunc(adds, func(a *simAdd) bool { return !a.certain() || a.order == 0 }) {
			for _, a := range adds {
				sure = append(sure, *a)
			}
		}
		list, err = tx.Signals(&Signals{Subject: subject, Name: name})
		return err
	}, func(err error) {
		s.noRefusal("signal")(err)
		if err != nil || loose {
			return
		}
		sum := 0.0
		if len(list) > 0 {
			for _, v := range list[0].Sums() {
				sum = v // of all is the last
			}
		}
		s.oracle.trace("%s of %s is %v, from %v to %v", name, subject, sum, least, most)
		if sum < least && !o.evicts || sum > most {
			s.oracle.fail("signal %s of %s is %v, it must be from %v to %v", name, subject, sum, least, most)
		}
		if o.evicts {
			return
		}
		if len(sure) > 0 && len(list) > 0 {
			s.compareSums(&list[0], sure, now)
		}
		if o.follow(s.step.core); epoch == o.epoch && !s.failing && removals == sig.asked {
			sig.learn(adds, sum, most)
		}
	})
}

// learn notes what a read has shown of the additions that may have been there: that all of them
// are, or that none is.
func (s *simSignal) learn(adds []*simAdd, sum, most float64) {
	least := 0.0
	for _, a := range adds {
		if !a.certain() && !a.ended {
			return // it may come yet
		}
		if a.certain() {
			least += a.v
		}
	}
	for _, a := range adds {
		switch {
		case a.certain():
		case sum == most:
			a.maybe, a.answered = false, a.applied
		case sum == least:
			s.adds = slices.DeleteFunc(s.adds, func(b *simAdd) bool { return b == a })
		}
	}
}

// compareSums compares the sums of all windows with exact ones.
func (s *sim) compareSums(info *SignalInfo, adds []simAdd, now time.Time) {
	slices.SortFunc(adds, func(a, b simAdd) int { return a.order - b.order })
	var newest time.Time
	for i := range adds {
		a := &adds[i]
		if a.at.IsZero() { // a clock that was set back makes nothing grow
			if a.at = a.applied; a.at.Before(newest) {
				a.at = newest
			}
		}
		if a.at.After(newest) {
			newest = a.at
		}
	}
	if now.Before(newest) {
		now = newest
	}
	lengths := s.cfg.SignalWindows
	for window, got := range info.Sums() {
		want := 0.0
		for _, a := range adds {
			if len(lengths) == 0 {
				want += a.v
			} else {
				want += a.v * math.Exp(-now.Sub(a.at).Seconds()/lengths[0].Seconds())
			}
		}
		if math.Abs(got-want) > 1e-9*want+1e-280 {
			s.oracle.fail("signal %s of %s in %s is %v, want %v", info.Name, info.Subject, window, got, want)
		}
		lengths = lengths[min(1, len(lengths)):]
	}
}

// endSignals reads all signals at the end of a run.
func (s *sim) endSignals(cl *simClient) {
	var keys []string
	for k := range s.oracle.signals.by {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		subject, name, _ := strings.Cut(k, " ")
		s.readSignal(cl, subject, name)
	}
}
