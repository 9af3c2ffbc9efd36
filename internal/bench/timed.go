package bench

import (
	"context"
	"errors"
	"sync"
	"time"
)

// timed measures a round of Options.Duration, as an open loop if the rate is not 0.
func (l *Load) timed(ctx context.Context, name string, long time.Duration, rate float64) (Round, error) {
	sessions := l.Options.Conns
	if l.Options.Workload == Wait {
		sessions *= 2
	}
	c, err := l.gather(ctx, sessions)
	if err != nil {
		return Round{}, err
	}
	defer c.dismiss()
	m := newMeter()
	var due *pacer
	if rate > 0 {
		due = newPacer(m, float64(l.Options.Pipeline)/rate)
		go due.run()
		defer due.stop()
	}
	switch l.Options.Workload {
	case Wait:
		err = l.startWaiting(c, m, due)
	case Enqueue:
		c.work(c.sessions, l.batches(m, due, l.enqueueBatch(m)))
	default:
		c.work(c.sessions, l.batches(m, due, l.cycleBatch(m)))
	}
	if err != nil {
		return Round{}, err
	}
	r, err := l.observe(ctx, c, m, name, long)
	if err != nil {
		return Round{}, err
	}
	if due != nil {
		r.Asked = rate
		r.Unsent = int64(len(due.times)) * int64(l.Options.Pipeline)
	}
	return r, nil
}

// batches is the work of a session: one batch after the other, immediately or when they are due.
func (l *Load) batches(m *meter, due *pacer, one func(Session, time.Duration) error) func(Session) error {
	return func(s Session) error {
		for !m.ended.Load() {
			at := m.now()
			if due != nil {
				var ok bool
				if at, ok = due.next(); !ok {
					return nil
				}
			}
			if err := one(s, at); err != nil {
				return err
			}
		}
		return nil
	}
}

// enqueueBatch enqueues a batch that is due at a time.
func (l *Load) enqueueBatch(m *meter) func(Session, time.Duration) error {
	n := l.Options.Pipeline
	return func(s Session, at time.Duration) error {
		if err := s.Enqueue(n); err != nil {
			return err
		}
		m.answered("enqueue", at)
		m.done.Add(int64(n))
		return nil
	}
}

// cycleBatch enqueues, leases and acks a batch that is due at a time.
func (l *Load) cycleBatch(m *meter) func(Session, time.Duration) error {
	n := l.Options.Pipeline
	return func(s Session, at time.Duration) error {
		if err := s.Enqueue(n); err != nil {
			return err
		}
		enqueued := m.answered("enqueue", at)
		if err := s.Lease(n); err != nil {
			return err
		}
		leased := m.answered("lease", enqueued)
		if err := s.Ack(); err != nil {
			return err
		}
		m.answered("ack", leased)
		m.answered("cycle", at)
		m.done.Add(int64(n))
		return nil
	}
}

// waiter is a session that puts timestamps into messages and waits for messages of others.
type waiter interface {
	Session
	enqueue(n int, at time.Duration) error
	consume(n int, seen func(payload []byte)) (int, error)
}

// startWaiting makes half of the sessions producers and half consumers. In a closed loop, the messages
// in flight are as many as the producers can send at a time.
func (l *Load) startWaiting(c *crew, m *meter, due *pacer) error {
	for _, s := range c.sessions {
		if _, ok := s.(waiter); !ok {
			return errors.New("this peer's sessions cannot measure how long a message takes")
		}
	}
	n := l.Options.Pipeline
	var under *credit
	if due == nil {
		under = newCredit(l.Options.Conns * n)
	}
	producers, consumers := c.sessions[:l.Options.Conns], c.sessions[l.Options.Conns:]
	c.work(producers, l.batches(m, due, func(s Session, at time.Duration) error {
		if under != nil {
			if !under.take(n) {
				return nil
			}
			at = m.now()
		}
		if err := s.(waiter).enqueue(n, at); err != nil {
			return err
		}
		m.answered("enqueue", at)
		return nil
	}))
	c.work(consumers, func(s Session) error {
		w := s.(waiter)
		if under != nil {
			defer under.close() // producers must not wait for a consumer that has stopped
		}
		for !m.ended.Load() {
			got, err := w.consume(n, func(payload []byte) { m.answered("deliver", stamped(payload)) })
			if err != nil {
				return err
			}
			m.done.Add(int64(got))
			if under != nil {
				under.give(got)
			}
		}
		return nil
	})
	return nil
}

// observe runs the crew for the warm-up and the duration of the round, and returns the results.
func (l *Load) observe(ctx context.Context, c *crew, m *meter, name string, long time.Duration) (Round, error) {
	var failure error
	sleep := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case failure = <-c.failed:
		case <-ctx.Done():
			failure = context.Cause(ctx)
		}
		return false
	}
	finish := func() error {
		m.ended.Store(true)
		if failure != nil {
			c.close()
			return errors.Join(ended(ctx, failure), dropped(c.wait()))
		}
		return ended(ctx, c.wait())
	}
	if !sleep(l.Options.Warmup) {
		return Round{}, finish()
	}
	account, base, begun := Open(l.PID), m.done.Load(), m.now()
	m.start()
	var seconds []int64
	counted := base
	for m.now()-begun < long {
		if !sleep(min(watchEach, long-(m.now()-begun))) {
			return Round{}, finish()
		}
		passed := m.now() - begun
		if int(passed/time.Second) > len(seconds) {
			now := m.done.Load()
			seconds = append(seconds, now-counted)
			counted = now
		}
		if l.Watch != nil {
			l.Watch(name, passed.Milliseconds(), long.Milliseconds(), true)
		}
	}
	m.on.Store(false)
	messages, took := m.done.Load()-base, m.now()-begun
	if err := finish(); err != nil {
		return Round{}, err
	}
	r := m.round(messages, took)
	r.PerSecond = seconds
	account.Charge(&r, m.done.Load()-base)
	return r, nil
}

// dropped ignores the errors of sessions that were closed while they worked.
func dropped(error) error { return nil }

// credit bounds the messages in flight.
type credit struct {
	mu     sync.Mutex
	more   sync.Cond
	left   int
	closed bool
}

func newCredit(n int) *credit {
	c := &credit{left: n}
	c.more.L = &c.mu
	return c
}

// take waits for n credits. It returns false if the credit was closed.
func (c *credit) take(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.left < n && !c.closed {
		c.more.Wait()
	}
	c.left -= n
	return !c.closed
}

func (c *credit) give(n int) {
	c.mu.Lock()
	c.left += n
	c.mu.Unlock()
	c.more.Signal()
}

func (c *credit) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.more.Broadcast()
}
