package search

import (
	"fmt"
	"time"

	"github.com/faisca/fila/storage"
)

// Statuses of a message. The engine stores ready and dead messages alike; dead means ready in a
// dead-letter queue.
const (
	StatusReady   = "ready"   // in the queue and deliverable
	StatusDelayed = "delayed" // ready at its due time
	StatusLeased  = "leased"  // delivered to a consumer, whose lease lasts
	StatusDead    = "dead"    // ready in a dead-letter queue
	StatusDone    = "done"    // acked, of a queue that keeps what is done
)

// MessageInfo describes a message.
type MessageInfo struct {
	ID                              storage.ID
	Status                          string    // a Status constant
	Attempt, Deliveries             uint32    // 1 plus the failures; deliveries so far
	EnqueuedAt, ReadyAt, LeaseUntil time.Time // zero where they do not apply
	Consumer                        string    // of its lease, or empty
	// Position is the number of ready messages of the key before this one, at most 100,000;
	// -1: the message is not ready.
	Position int64
	storage.Meta
}

// View is a message as FILA.GET and FILA.BROWSE show it. Payload, Headers and the fields
// that come from the record are valid after Open.
type View struct {
	MessageInfo // its weight is that of the key
	Queue, Key  string
	Priority    uint8
	Group       string // of which it is a member; "": none, or the group has come to its end
	Progress    string // how far the work on it is, see engine.ExtendOptions; "": not known

	// Set for a message that has failed or is dead.
	Error, Cause              string // of the last failure; "": the cause was not named
	FirstFailedAt, LastFailed time.Time
	Failures                  []storage.Failure // the last ten, the oldest first, also from before it died or was redriven
	Dead                      *Death            // nil: the message did not come from another queue as dead

	FirstLeasedAt time.Time // zero: not known, or the queue does not keep what is done
	AckedAt       time.Time // of a message that is done: only its headers, and the value of its ack, are left of its content
	Result        []byte    // the value, which may be empty; nil: none

	record  []byte
	message storage.Message
}

// Death is how a message came into a dead-letter queue.
type Death struct {
	Reason, Origin       string // why, and the queue in which it died
	At                   time.Time
	Attempts, Deliveries uint32 // in the queue in which it died
}

// SetRecord gives the view the record of the message, for Open, and the weight of its key.
func (v *View) SetRecord(record []byte, weight uint32) { v.record, v.Weight = record, weight }

// RecordBytes returns the bytes of that record.
func (v *View) RecordBytes() int { return len(v.record) }

// Payload returns the payload. The caller must not change it.
func (v *View) Payload() []byte { return v.message.Payload }

// Headers returns the headers. The caller must not change them.
func (v *View) Headers() []storage.Header { return v.message.Headers }

// Open decodes the record. It runs on the goroutine of the connection. An error means that
// the record is damaged.
func (v *View) Open() error {
	if v.Status == StatusDone {
		return nil // it has no record of its own
	}
	if err := v.message.Decode(v.record); err != nil {
		return fmt.Errorf("message %s: %w", v.ID, err)
	}
	v.message.Weight, v.message.Cost = v.Weight, v.Cost
	v.Meta = v.message.Meta
	d := v.message.Dead
	if d == nil {
		return nil
	}
	v.Dead = &Death{Reason: d.Reason, Origin: d.Queue, At: time.Unix(0, d.DiedAt), Attempts: d.Attempts, Deliveries: d.Deliveries}
	if v.FirstFailedAt.IsZero() && d.FirstFailedAt > 0 { // no failure since the message is here
		v.Error, v.Cause, v.FirstFailedAt, v.LastFailed = d.Error, d.Cause, time.Unix(0, d.FirstFailedAt), time.Unix(0, d.LastFailedAt)
	}
	return nil
}

// View returns a message of a queue that is done.
func (e *End) View(queue string) *View {
	v := &View{
		MessageInfo: MessageInfo{
			ID: e.ID, Status: StatusDone, Attempt: e.Rec.Attempts, Deliveries: e.Rec.Deliveries, EnqueuedAt: e.ID.Time(), Consumer: e.Rec.Consumer, Position: -1,
		},
		Queue: queue, Key: e.Rec.Key, Priority: storage.PriorityMax - min(e.ID.Rank(), storage.PriorityMax), AckedAt: time.Unix(0, e.Rec.At),
	}
	if e.Rec.FirstLeasedAt != 0 {
		v.FirstLeasedAt = time.Unix(0, e.Rec.FirstLeasedAt)
	}
	v.message.Headers = e.Rec.Headers
	v.Result = e.Value()
	return v
}
