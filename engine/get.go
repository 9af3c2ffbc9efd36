package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/storage"
)

// View is a message as FILA.GET and FILA.BROWSE show it. Open must be called before
// Payload and Headers.
type View struct {
	MessageInfo
	Queue, Key string
	Weight     uint32 // of the key
	Priority   uint8
	ExpiresAt  time.Time // zero: never

	// Of a message that has failed, or that is dead:
	Error                     string
	FirstFailedAt, LastFailed time.Time
	Dead                      *Death // nil: it is not in a dead-letter queue, or did not die

	record  []byte
	message storage.Message
}

// Death is how a message came into a dead-letter queue.
type Death struct {
	Reason, Origin       string // Origin is the queue where it died
	At                   time.Time
	Attempts, Deliveries uint32 // that it had there
}

// Payload returns the message's payload. It must not be changed.
func (v *View) Payload() []byte { return v.message.Payload }

// Headers returns the message's headers. They must not be changed.
func (v *View) Headers() []Header { return v.message.Headers }

// Open makes the parts of the record available. It runs on the connection.
func (v *View) Open() error {
	if err := v.message.Decode(v.record); err != nil {
		return fmt.Errorf("message %s: %w", v.ID, err)
	}
	v.Throttles = v.message.Throttles
	if at := v.message.ExpiresAt; at > 0 {
		v.ExpiresAt = time.Unix(0, at)
	}
	d := v.message.Dead
	if d == nil {
		return nil
	}
	v.Dead = &Death{Reason: d.Reason, Origin: d.Queue, At: time.Unix(0, d.DiedAt), Attempts: d.Attempts, Deliveries: d.Deliveries}
	if v.FirstFailedAt.IsZero() && d.FirstFailedAt > 0 { // it has not failed since it is here
		v.Error, v.FirstFailedAt, v.LastFailed = d.Error, time.Unix(0, d.FirstFailedAt), time.Unix(0, d.LastFailedAt)
	}
	return nil
}

// Get asks for a message.
type Get struct {
	Queue string
	ID    ID

	look *lookup
}

// Get shows a message of whatever status, nil if the queue has none of that id. It
// is read beside the loop; the task waits for that.
func (tx *Tx) Get(req *Get) (*View, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return nil, err
	}
	l, err := tx.lookedUp(q, &req.look, []ID{req.ID}, true)
	if err != nil {
		return nil, lookupError(err, "get")
	}
	if l.found[0] == nil {
		return nil, nil //nolint:nilnil // there is no such message
	}
	return c.view(&l.changeLog, l.found[0]), nil
}

// PreflightGet looks up what Get needs, see Preflighter. The messages of a transaction are all
// in memory until it is answered, so that together they may have Config.ReplyBytes.
func (tx *Tx) PreflightGet(req *Get) error {
	if err := tx.preflightLookup(req.Queue, &req.look, []ID{req.ID}, true); err != nil {
		return err
	}
	if l := req.look; l != nil && l.done && l.err == nil && l.found[0] != nil {
		tx.task.shown += len(l.found[0].m.body)
	}
	if tx.task.shown > tx.core.cfg.ReplyBytes {
		return fmt.Errorf("%w: the messages that FILA.GET shows together have more than %d bytes, %w", ErrTooBig, tx.core.cfg.ReplyBytes, errTransaction)
	}
	return nil
}

// view shows a message that was found in the store, nil if it is gone.
func (c *core) view(w *changeLog, f *foundMessage) *View {
	is := c.locate(w, f)
	m, q := f.m, w.queue
	status := StatusReady
	switch {
	case is == gone:
		return nil
	case is == leased:
		m, status = c.leases.byID[m.id], StatusLeased
	case is == delayed:
		status = StatusDelayed
	case q.isDLQ():
		status = StatusDead
	}
	v := &View{MessageInfo: *m.info(status), Queue: q.name, Key: f.key, Weight: m.key.weight, Priority: priorityMax - min(m.rank, priorityMax), record: f.m.body}
	if is == delayed {
		v.ReadyAt = time.Unix(0, f.readyAt)
	}
	if failed := m.failure; failed != nil {
		v.Error, v.FirstFailedAt, v.LastFailed = failed.text, time.Unix(0, failed.first), time.Unix(0, failed.last)
	}
	return v
}
