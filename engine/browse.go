package engine

import (
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/storage"
)

// Browse is a request for one page of a queue's messages.
type Browse struct {
	Queue  string
	Status string // only messages with this status; "": all
	Key    string // only messages of this fairness key; "": of all keys
	Cursor string // as the page before returned it; "": the beginning
	Count  int    // messages to inspect, whether they match or not

	page *page // being read, or read; nil: not asked for
}

// Statuses returns the possible statuses of a message.
func Statuses() []string { return []string{StatusReady, StatusDelayed, StatusLeased, StatusDead} }

// Browse returns a page of messages, ordered by fairness key and within a key by position.
// A page ends early when its messages are large. next is "" at the end.
//
// A message that exists during the whole walk is seen exactly once, whatever else changes:
// the cursor is a place in an order in which messages do not move. All messages of a page
// are shown as of one turn.
//
// The page is read off the loop, and the task parks meanwhile (ErrWouldBlock). A page whose
// change log could not follow is read again. Errors: an unknown queue, ErrInvalid for a bad
// cursor, errors of the store. In a transaction Browse is refused.
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
		req.page = c.readPage(q, req.Key, cursor, max(req.Count, 1), tx.task.resume)
		return "", nil, tx.await()
	}
	if p.err != nil {
		return "", nil, fmt.Errorf("browse %q: %w", req.Queue, p.err)
	}
	c.spend(len(p.found)) // not divided: the page is a view of one moment
	for i := range p.found {
		if v := c.view(&p.changeLog, &p.found[i]); v != nil && (req.Status == "" || req.Status == v.Status) {
			list = append(list, v)
		}
	}
	return formatCursor(p.next), list, nil
}

// A cursor is the key of the next message in the store, without the queue's number, in a
// text form that every client can keep.

// formatCursor returns the cursor for a message key; "" for nil, the end.
func formatCursor(key []byte) string {
	if key == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(key[len(storage.AppendQueuePrefix(nil, 0)):])
}

// parseCursor returns the message key of a cursor; nil for "", the beginning. Anything that
// formatCursor cannot have returned is ErrInvalid.
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
		return nil, fmt.Errorf("%w: CURSOR %.80q is none that FILA.BROWSE has returned; start with 0", ErrInvalid, cursor)
	}
	return key, nil
}

// View is a message as FILA.GET and FILA.BROWSE show it. Payload, Headers and the fields
// that come from the record are valid after Open.
type View struct {
	MessageInfo
	Queue, Key string
	Weight     uint32 // of the key
	Priority   uint8
	ExpiresAt  time.Time // zero: the message has no TTL

	// Set for a message that has failed or is dead.
	Error                     string
	FirstFailedAt, LastFailed time.Time
	Dead                      *Death // nil: the message did not come from another queue as dead

	record  []byte
	message storage.Message
}

// Death is how a message came into a dead-letter queue.
type Death struct {
	Reason, Origin       string // why, and the queue in which it died
	At                   time.Time
	Attempts, Deliveries uint32 // in the queue in which it died
}

// Payload returns the payload. The caller must not change it.
func (v *View) Payload() []byte { return v.message.Payload }

// Headers returns the headers. The caller must not change them.
func (v *View) Headers() []Header { return v.message.Headers }

// Open decodes the record. It runs on the goroutine of the connection. An error means that
// the record is damaged.
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
	if v.FirstFailedAt.IsZero() && d.FirstFailedAt > 0 { // no failure since the message is here
		v.Error, v.FirstFailedAt, v.LastFailed = d.Error, time.Unix(0, d.FirstFailedAt), time.Unix(0, d.LastFailedAt)
	}
	return nil
}

// Get is a request for one message.
type Get struct {
	Queue string
	ID    ID

	look *lookup
}

// Get returns a message of any status; nil if the queue has none with that id. The message
// is looked up off the loop, and the task parks meanwhile.
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

// PreflightGet looks up the message for a transaction. All messages that a transaction
// shows are in memory until its reply is written, so together they are bounded by
// Config.ReplyBytes: beyond that the error is ErrTooBig.
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

// view returns a message that was read from the store as it is now; nil if it is gone.
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

// extract removes a message that was read from the store from all structures in memory and
// from the index of due times. The caller removes it, moves it, or makes it ready or
// delayed again in the same turn. It returns nil if the message is leased or gone. The
// change log must be valid, and each message may be extracted once.
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

// extractReady removes a message from its key's head cache. A message behind the edge is in
// no structure.
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

// extractDelayed removes a message from the index of due times.
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

// fresh returns a copy for use in memory, without the body: bodies are counted when setBody
// adds them.
func (f *foundMessage) fresh() *message {
	m := *f.m
	m.body = nil
	return &m
}
