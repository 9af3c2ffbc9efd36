package engine

import (
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/storage"
)

// Browse asks for a page of a queue's messages.
type Browse struct {
	Queue  string
	Status string // only those of this status; "": of all
	Key    string // only those of this fairness key; "": of all
	Cursor string // of the page before; "": from the beginning
	Count  int    // messages to look at, matching or not

	page *page
}

// Statuses are what a message may be.
func Statuses() []string { return []string{StatusReady, StatusDelayed, StatusLeased, StatusDead} }

// Browse goes through the messages of a queue in the order of their keys, and in a
// key in the order in which they are delivered. A page ends early when its messages
// are large. The next cursor is "" at the end. Whatever happens meanwhile, a message
// that is there during the whole walk is seen exactly once: the cursor is a place in
// that order, and messages keep theirs.
//
// The page is read beside the loop; the task waits for that.
func (tx *Tx) Browse(req *Browse) (next string, list []*View, err error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return "", nil, err
	}
	if tx.atomic {
		return "", nil, errWaits
	}
	p := req.page
	if req.page = nil; p == nil || !p.done || !c.valid(&p.changeLog) {
		cursor, err := parseCursor(q.no, req.Cursor)
		if err != nil {
			return "", nil, err
		}
		req.page = c.readPage(q, req.Key, cursor, max(req.Count, 1), resume(tx.task))
		tx.park(nil, 0, false)
		return "", nil, ErrWouldBlock
	}
	if p.err != nil {
		return "", nil, fmt.Errorf("browse %q: %w", req.Queue, p.err)
	}
	c.spend(len(p.found)) // one moment is shown: it is not divided
	for i := range p.found {
		if v := c.view(&p.changeLog, &p.found[i]); v != nil && (req.Status == "" || req.Status == v.Status) {
			list = append(list, v)
		}
	}
	return formatCursor(p.next), list, nil
}

// A cursor is the message key of the store at which to go on, without the number of
// the queue, in a form that survives every client.

func formatCursor(key []byte) string {
	if key == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(key[len(storage.AppendQueuePrefix(nil, 0)):])
}

func parseCursor(queue uint32, cursor string) ([]byte, error) {
	if cursor == "" {
		return nil, nil
	}
	place, err := base64.RawURLEncoding.DecodeString(cursor)
	key := slices.Concat(storage.AppendQueuePrefix(nil, queue), place)
	if err == nil {
		_, err = storage.ParseMessageKey(key)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: CURSOR %.80q is none that FILA.BROWSE has returned; 0 starts anew", ErrInvalid, cursor)
	}
	return key, nil
}

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

// extract takes a message that was found in the store out of whatever holds it in
// memory, and off the due-time index: the caller then removes it, moves it, or
// makes it ready or delayed anew, within the same turn. It returns nil if the
// message is leased or gone. The watch must hold, and each message may be
// extracted once.
func (c *core) extract(w *changeLog, f *foundMessage) *message {
	var m *message
	switch c.locate(w, f) {
	case ready:
		m = c.extractReady(f)
	case delayed:
		m = c.extractDelayed(f)
	case leased, gone:
	}
	if m == nil {
		return nil
	}
	m.status = gone // in no structure
	if m.body == nil {
		c.setBody(m, f.m.body)
	}
	m.key.touch(m.place)
	c.settle(m.key)
	return m
}

// extractReady takes a message out of its key's window, or from behind its edge,
// where nothing in memory knows of it.
func (c *core) extractReady(f *foundMessage) *message {
	k := f.m.key
	if !k.inWindow(f.m.place) {
		return f.fresh()
	}
	m := k.removeAt(f.m.place)
	if m != nil {
		c.heads.messages--
	}
	return m
}

// extractDelayed takes a message off the due-time index.
func (c *core) extractDelayed(f *foundMessage) *message {
	k := f.m.key
	if d := c.delayed.index.byID[f.m.id]; d != nil && d.mk.Queue == k.queue.no {
		c.unschedule(d)
		if d.m != nil {
			return d.m
		}
		return f.fresh()
	}
	c.unindex(&c.delayed.index, f.readyAt, f.m.storageKey())
	k.delayed--
	k.queue.delayed--
	k.queue.recordTime(f.m.id, 0)
	return f.fresh()
}

// fresh returns the message for use in memory, as one whose body is not counted
// there yet.
func (f *foundMessage) fresh() *message {
	m := *f.m
	m.body = nil
	return &m
}
