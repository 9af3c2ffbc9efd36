package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/faisca/fila/engine/cron"
	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// CatchUp is what becomes of missed ticks, see package cron.
type CatchUp = cron.CatchUp

// The rules.
const (
	CatchUpLast = cron.Last
	CatchUpNone = cron.None
	CatchUpAll  = cron.All
)

// CronInfo describes a recurring message as FILA.CRON shows it.
type CronInfo = cron.Info

// Cron is a request to set a recurring message. Preparer.PrepareCron must be called before
// Tx.SetCron.
type Cron struct {
	Name       string
	Expression string // see schedule.Parse
	Zone       string // a name of the IANA database; "": UTC
	CatchUp    CatchUp
	Topic      bool    // Message.Queue is the name of a topic, to which each tick publishes
	Message    Enqueue // what each tick enqueues; At and Dedup are not used

	schedule *schedule.Schedule
	record   []byte
}

// PrepareCron validates a recurring message and encodes its content. It runs on the
// goroutine of the connection. Errors: ErrInvalid for an expression, zone or value,
// ErrTooBig for a part over its limit.
func (p *Preparer) PrepareCron(cr *Cron) error { return prepareCron(cr, &p.cfg.Limits) }

func prepareCron(cr *Cron, l *Limits) (err error) {
	switch {
	case cr.Name == "":
		return fmt.Errorf("%w: the name of a recurring message has at least one byte", ErrInvalid)
	case len(cr.Name) > l.Key:
		return fmt.Errorf("%w: name of %d bytes, the limit is %d", ErrTooBig, len(cr.Name), l.Key)
	}
	if cr.schedule, err = schedule.Parse(cr.Expression, cr.Zone); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	req := &cr.Message
	if err := checkMessage(req, l); err != nil {
		return err
	}
	m := storage.Message{Payload: req.Payload, Headers: req.Headers, Meta: req.CutContent()}
	cr.record = m.Append(nil)
	req.Payload, req.Headers = nil, nil
	return nil
}

// cronTable is the component of recurring messages. Memory holds all of them but the contents of their messages. Their
// states are those of package cron; cron_tick.go is the round that makes the messages of ticks.
type cronTable struct {
	cron.Table
	round   *cronRound // under way off the loop; nil: none
	retryAt int64      // no round begins before: the last one was refused
}

func (t *cronTable) reset() { *t = cronTable{Table: cron.NewTable()} }

// next returns when the next entry ticks. No timer is needed while a round is under way:
// its result is a task.
func (t *cronTable) next(c *core) int64 {
	if at, ok := t.Next(); ok && t.round == nil {
		return max(c.onCalendar(at), t.retryAt)
	}
	return never
}

// check verifies the recurring messages (21).
func (t *cronTable) check(c *core, bad report) {
	t.Check(func(k *cron.Tick) bool {
		return k.Alone || t.round != nil && slices.ContainsFunc(t.round.jobs, func(j *cronJob) bool { return j.Tick == k })
	}, c.ops.census != nil, cron.Report(bad))
}

// SetCron creates a recurring message, or replaces the one with that name. If expression
// and zone stay the same, so does the next tick: setting an entry again neither skips nor
// repeats a tick. A pause goes on. Otherwise the first tick is the first one after now. A tick in the round
// under way is made again, with the new content.
//
// Errors: an unknown queue, ErrInvalid for a message that would expire before it is ready, that
// an ordered queue does not take, or for an entry above the limit, ErrNoBudget for a budget that does not exist, ErrMisconf while
// the store takes no writes.
func (tx *Tx) SetCron(cr *Cron) error {
	c := tx.core
	req := &cr.Message
	if err := cr.checkTarget(c); err != nil {
		return err
	}
	if err := c.writableForNew(); err != nil {
		return err
	}
	for _, name := range req.Budgets {
		if _, err := c.accountNamed(name); err != nil {
			return err
		}
	}
	n, _ := c.cron.Len()
	if c.cron.Get(cr.Name) == nil && n >= c.cfg.Limits.Crons {
		return fmt.Errorf("%w: the limit is %s", ErrInvalid, errtext.Amount(c.cfg.Limits.Crons, "recurring message"))
	}
	set := storage.Cron{Queue: req.Queue, Expression: cr.Expression, Zone: cr.Zone, CatchUp: uint32(cr.CatchUp), Topic: cr.Topic}
	o := cronOptions(req)
	limits.Once(&o.Meta)
	o.Store(&set)
	e := c.cron.Set(cr.Name, set, cr.schedule, c.calendar())
	e.PutContent(c.out.batch, cr.record)
	e.Put(c.out.batch)
	c.out.sync = true
	return nil
}

// cronOptions returns what a request says of its message beside the content.
func cronOptions(req *Enqueue) cron.Options {
	return cron.Options{
		Meta: req.Meta, Key: req.Key, Priority: req.Priority, Delay: req.Delay, TTL: req.TTL, Charge: req.Charge,
		Replace: req.Replace, MaxDelay: req.MaxDelay,
	}
}

// cronRequest is the reverse: the message of a tick, without its content. A budget that is gone holds it.
func cronRequest(k *cron.Tick) Enqueue {
	o := cron.OptionsOf(&k.Record)
	return Enqueue{
		Queue: k.Record.Queue, Meta: o.Meta, Key: o.Key, Priority: o.Priority, Delay: o.Delay, TTL: o.TTL, Charge: o.Charge,
		Replace: o.Replace, MaxDelay: o.MaxDelay, lenient: true,
	}
}

// checkTarget refuses a recurring message whose ticks its queue would refuse. A topic may get
// its bindings later.
func (cr *Cron) checkTarget(c *core) error {
	req := &cr.Message
	if cr.Topic {
		if err := c.writable(); err != nil {
			return err
		}
		return c.cfg.Limits.CheckTopicName(req.Queue)
	}
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return err
	}
	_, err = c.lifetime(q, req.TTL, c.now+int64(req.Delay))
	return cmp.Or(q.checkOrder(req), err)
}

// DeleteCron removes a recurring message and reports whether it existed. Messages that it
// has enqueued stay; a tick in the round under way enqueues nothing.
func (tx *Tx) DeleteCron(name string) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	e := c.cron.Get(name)
	if e == nil {
		return false, nil
	}
	c.cron.Remove(e, c.out.batch)
	c.out.sync = true
	return true, nil
}

// PauseCron stops the ticks of a recurring message, or lets them go on with the first one to come, and reports whether it
// exists. A tick in the round under way enqueues nothing.
func (tx *Tx) PauseCron(name string, paused bool) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	e := c.cron.Get(name)
	if e != nil && c.cron.Pause(e, paused, c.calendar()) {
		e.Put(c.out.batch)
		c.out.sync = true
	}
	return e != nil, nil
}

// CronContent asks for what the ticks of a recurring message enqueue. The unexported fields are the progress of the call.
type CronContent struct {
	Name    string
	Payload []byte
	Headers []Header
	Meta    // throttles, weight and cost

	read         bool
	epoch, setAt uint64
	err          error
}

// CronContent reads the content, off the loop, and returns ErrWouldBlock meanwhile. That of a recurring message that does
// not exist is empty. In a transaction it is refused.
func (tx *Tx) CronContent(req *CronContent) error {
	c := tx.core
	e := c.cron.Get(req.Name)
	switch {
	case e == nil:
		return nil
	case tx.atomic:
		return errWaits
	}
	epoch, setAt := c.epoch, uint64(e.Record().SetAt)
	if req.read && req.epoch == epoch && req.setAt == setAt {
		return req.err
	}
	return tx.awaitRead(func(store Store) func() {
		m, err := cron.Content(store, req.Name)
		return func() {
			req.Payload, req.Headers, req.Meta, req.err = m.Payload, m.Headers, m.Meta, err
			req.read, req.epoch, req.setAt = true, epoch, setAt
		}
	})
}

// Cron describes a recurring message; ok is false if there is none with that name.
func (tx *Tx) Cron(name string) (info CronInfo, ok bool) {
	e := tx.core.cron.Get(name)
	if e == nil {
		return CronInfo{}, false
	}
	return e.Info(), true
}

// Crons lists up to count recurring messages from a cursor on, filtered by match. The next
// cursor is 0 at the end. An entry that exists during the whole listing is listed exactly
// once.
func (tx *Tx) Crons(cursor uint64, count int, match func(string) bool) (next uint64, list []CronInfo) {
	next = tx.core.cron.Walk(cursor, count, func(e *cron.Entry) {
		if match(e.Name()) {
			list = append(list, e.Info())
		}
	})
	return next, list
}

// recover reads all entries, without the contents of their messages. An entry whose
// expression or zone is no longer valid is kept, disabled, and logged.
func (t *cronTable) recover(c *core) error {
	return c.scan(storage.State, storage.AppendStateKey(nil, storage.StateCron), func(k, v []byte) error {
		name, disabled, err := t.Read(k, v)
		if disabled != nil {
			c.cfg.Log.Error().Err(disabled).Str("cron", name).Msg("cron entry disabled: invalid schedule, set it again")
		}
		return err
	})
}
