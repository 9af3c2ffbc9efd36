package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/storage"
)

// LeaseRequest asks for ready messages of one or more queues.
type LeaseRequest struct {
	Queues     []string
	Count      int           // the most to deliver, at least 1; a lease never waits to reach it
	Block      time.Duration // how long to wait for the first message; negative: not at all, 0: without limit
	SameKey    bool          // all messages are of one key, the one whose turn it is
	Visibility time.Duration // duration of the leases; 0: the setting of each queue
	Consumer   string        // a name for FILA.GET and FILA.BROWSE; may be empty

	parts *leaseParts // progress of a large request that takes several turns
	reads int         // of the preflight of a transaction with SameKey
}

// Delivery is a leased message on its way to a client. Receipt proves the lease to Ack,
// Nack, Extend and Release. Payload and Headers are empty until Load has succeeded.
type Delivery struct {
	Receipt    Receipt
	Queue, Key string
	Attempt    uint32 // 1 plus the failures so far
	Deliveries uint32 // deliveries so far, this one included
	EnqueuedAt time.Time
	LeaseUntil time.Time
	Visibility time.Duration // the lease began so long before LeaseUntil
	// Waited is how long the message was ready before the lease. For a message that was read
	// from disk it is as exact as the records: they do not have the time of a release or a redrive.
	Waited time.Duration
	// Kept is set if the transaction that has leased the message has removed it as well: it is in no
	// queue to which it could return, and Load does not read.
	Kept bool

	mk      storage.MessageKey
	record  []byte
	message storage.Message
	notes   *leaseNotes // take headers of the message; nil: none are kept
	stored  bool        // the reply may leave before the commit, see mayReplyEarly
}

// Payload returns the payload. The caller must not change it.
func (d *Delivery) Payload() []byte { return d.message.Payload }

// Headers returns the headers. The caller must not change them.
func (d *Delivery) Headers() []Header { return d.message.Headers }

// Priority returns the priority of the message, 0 to 9.
func (d *Delivery) Priority() uint8 { return storage.PriorityMax - d.mk.Rank }

// Held returns how many bytes Release would free.
func (d *Delivery) Held() int { return len(d.record) }

// Release frees the record to save memory while a reply waits. Payload and Headers are
// empty until Load reads the record again.
func (d *Delivery) Release() {
	d.record = nil
	d.message = storage.Message{Meta: d.message.Meta}
}

// load is Load for any store; the simulation has its own.
func load(ds []*Delivery, store Store) (read int, err error) {
	d := ds[0]
	if d.record == nil {
		read = loadAhead(ds, store)
	}
	if d.record == nil {
		b, err := storage.GetMessage(store, d.mk.Append(nil))
		if errors.Is(err, storage.ErrNotFound) {
			return 0, fmt.Errorf("%w: %s", ErrNoMessage, d.mk.ID)
		}
		if err != nil {
			return 0, fmt.Errorf("load message %s: %w", d.mk.ID, err)
		}
		d.record, read = b, len(b)
	}
	if err := d.message.DecodeLike(d.record, d.message.Throttles, d.message.Budgets); err != nil {
		return read, fmt.Errorf("load message %s: %w", d.mk.ID, err)
	}
	if d.notes != nil {
		d.notes.headers.keep(d.message.Headers)
	}
	return read, nil
}

// loadAhead reads the records of the first deliveries without one, as many as the store reads at a time.
func loadAhead(ds []*Delivery, store Store) (read int) {
	const most = 16
	var wanting [most]*Delivery
	var keys [most][]byte
	n := 0
	for i := 0; i < len(ds) && n < most; i++ {
		if d := ds[i]; d.record == nil {
			wanting[n], keys[n] = d, d.mk.Append(nil)
			n++
		}
	}
	if n == 1 {
		return 0
	}
	for i, record := range storage.GetMessages(store, keys[:n], LoadBytes) {
		wanting[i].record = record
		read += len(record)
	}
	return read
}

// Receipt identifies one delivery of a message. Once the lease of that delivery is over, the
// receipt is invalid for good.
type Receipt struct {
	ID ID
	// Fence is the delivery number. It increases with each delivery of the message, and with
	// each start of the broker, see core.fenceBase.
	Fence uint64
	// Bare is true if only a message id was given. It then refers to the current lease of the
	// message, which is meant for operators.
	Bare bool
	// Held is set by Ack and Release: the receipt had a live lease. Fence is then its
	// delivery number, also of a bare receipt.
	Held bool
}

// LoadBytes bounds what Load reads for other deliveries than the first.
const LoadBytes = 64 << 10

// leaseParts is the progress of a large lease between turns. epoch tells whether a recovery
// has dropped the leases meanwhile; then the request restarts.
type leaseParts struct {
	epoch uint64
	until int64 // deadline of a blocking request; 0: none
	got   []*Delivery
	key   *fairKey // of all of them with SameKey
}
