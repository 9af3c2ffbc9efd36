package engine

import (
	"github.com/faisca/fila/engine/scripts"
	"github.com/faisca/fila/internal/hook"
)

// The part of on_enqueue in an enqueue: the decision, on the connection, and what becomes of it in
// the turn.

// decide asks the on_enqueue hook of the request's queue, if there is one, and writes its
// decision into the request. It runs on the connection. If the hook fails, its decision is the
// safe one.
func (s *Snapshot) decide(req *Enqueue, now func() int64) {
	hooks, _ := s.hooks.Get(req.Queue)
	h := hooks.by[hook.OnEnqueue]
	if h == nil {
		return
	}
	msg := hook.Message{
		Queue: req.Queue, Headers: req.Headers, PayloadSize: len(req.Payload), Key: req.Key, Meta: req.Meta,
	}
	msg.Weight, msg.Charge = max(req.Weight, 1), req.chargeEach()
	at := unix(now())
	d, _ := h.OnEnqueue(at, &msg, s.View(at), hooks.bounds) // the hook has counted an error, and the decision is safe
	if d.Key != "" {
		req.Key = d.Key
	}
	if d.Weight > 0 {
		req.Weight = d.Weight
	}
	if d.Cost > 0 {
		req.Cost = d.Cost
	}
	if d.Throttles != nil {
		req.Throttles = d.Throttles
	}
	if d.Priority != nil {
		req.hookPriority = d.Priority
	}
	if d.Budgets != nil {
		req.Budgets, req.lenient = d.Budgets, true
	}
	if d.Charge != nil {
		req.Charge = d.Charge
	}
	req.Retries = req.Retries.With(d.Retry)
	req.hook, req.hookDelay = h, d.Delay // times checks it against the queue's time to live
}

// A hook decides on the connection, without knowing the settings of the queue at the time of
// the enqueue. So a decision within Limits may still be impossible for the queue: a delay that
// ends after the message's time to live, or a delay or priority in an ordered queue. A hook must
// not fail a command. The engine therefore ignores such a part of the decision, applies the rest,
// and has the hook count an error.

// times notes when a message that is enqueued now is ready, which may be in the past, and
// when its time to live ends, 0 for never. A delay of the hook takes precedence over that of
// the producer, unless it ends after the time to live; in an ordered queue there is neither.
func (c *core) times(a *admission, req *Enqueue) (err error) {
	if d := req.hookDelay; d != nil && a.queue.ordered() {
		a.ignored = *d > 0
	} else if d != nil {
		a.readyAt = c.noLater(a, req, c.now+int64(*d))
		if a.expires, err = c.lifetime(a.queue, req.TTL, a.readyAt); err == nil {
			return nil
		}
		a.ignored = true
	}
	a.readyAt = 0
	if req.At > 0 {
		a.readyAt = c.noLater(a, req, c.onCalendar(req.At))
	}
	if req.Delay > 0 {
		a.readyAt = c.noLater(a, req, c.now+int64(req.Delay))
	}
	a.expires, err = c.lifetime(a.queue, req.TTL, a.readyAt)
	return err
}

// rejections is the job that reports to hooks what the engine has ignored of their decisions. It
// runs off the loop because a hook takes a lock to count.
type rejections struct{ all []scripts.Rejection }

// reportRejected has the hook count an error. The reports of one batch share a job.
func (c *core) reportRejected(r scripts.Rejection) {
	if n := len(c.out.jobs); n > 0 {
		if u, ok := c.out.jobs[n-1].(*rejections); ok {
			u.all = append(u.all, r)
			return
		}
	}
	c.out.jobs = append(c.out.jobs, &rejections{[]scripts.Rejection{r}})
}

// do implements job.
func (u *rejections) do(Store) {
	for i := range u.all {
		u.all[i].Report()
	}
}

// Apply implements Call. Nothing follows from the reports.
func (u *rejections) Apply(*Tx) error { return nil }
