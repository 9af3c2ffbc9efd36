package delivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/storage"
)

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

	Place  storage.MessageKey // key of its records
	Notes  *Notes             // take headers of the message; nil: none are kept
	Stored bool               // the reply may leave before the commit

	record  []byte
	message storage.Message
}

// Expect gives the delivery what is known of the message: Load reuses what its record has as well, instead of allocating.
func (d *Delivery) Expect(meta storage.Meta) { d.message.Meta = meta }

// Meta returns what its producer said about the message, as far as it is known before Load.
func (d *Delivery) Meta() storage.Meta { return d.message.Meta }

// SetRecord gives the delivery the record of the message; nil: Load has to read it.
func (d *Delivery) SetRecord(record []byte) { d.record = record }

// HasRecord reports whether Load has nothing to read.
func (d *Delivery) HasRecord() bool { return d.record != nil }

// Payload returns the payload. The caller must not change it.
func (d *Delivery) Payload() []byte { return d.message.Payload }

// Headers returns the headers. The caller must not change them.
func (d *Delivery) Headers() []storage.Header { return d.message.Headers }

// Priority returns the priority of the message, 0 to 9.
func (d *Delivery) Priority() uint8 { return storage.PriorityMax - d.Place.Rank }

// RecordBytes returns how many bytes Release would free.
func (d *Delivery) RecordBytes() int { return len(d.record) }

// Release frees the record to save memory while a reply waits. Payload and Headers are
// empty until Load reads the record again.
func (d *Delivery) Release() {
	d.record = nil
	d.message = storage.Message{Meta: d.message.Meta}
}

// LoadBytes bounds what Load reads for other deliveries than the first.
const LoadBytes = 64 << 10

// Load makes payload and headers of the first delivery available. It returns the bytes that it has read, for the next
// few as well where the store can read them at the same time. The error is ErrNoMessage, or that of the store.
func Load(ds []*Delivery, store storage.Reader) (read int, err error) {
	d := ds[0]
	if d.record == nil {
		read = loadAhead(ds, store)
	}
	if d.record == nil {
		b, err := storage.GetMessage(store, d.Place.Append(nil))
		if errors.Is(err, storage.ErrNotFound) {
			return 0, fmt.Errorf("%w: %s", refusals.ErrNoMessage, d.Place.ID)
		}
		if err != nil {
			return 0, fmt.Errorf("load message %s: %w", d.Place.ID, err)
		}
		d.record, read = b, len(b)
	}
	if err := d.message.DecodeLike(d.record, &d.message.Meta); err != nil {
		return read, fmt.Errorf("load message %s: %w", d.Place.ID, err)
	}
	if d.Notes != nil {
		d.Notes.keep(d.message.Headers)
	}
	return read, nil
}

// loadAhead reads the records of the first deliveries without one, as many as the store reads at a time.
func loadAhead(ds []*Delivery, store storage.Reader) (read int) {
	const most = 16
	var wanting [most]*Delivery
	var keys [most][]byte
	n := 0
	for i := 0; i < len(ds) && n < most; i++ {
		if d := ds[i]; d.record == nil {
			wanting[n], keys[n] = d, d.Place.Append(nil)
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
