package storage

import (
	"fmt"
	"math"
)

// This file is the records of the families State and Dedup.

// DedupEntry is the record of a deduplication id: the message enqueued with it, and when.
// Its key is a dedup key.
type DedupEntry struct {
	ID ID
	At int64 // nanoseconds since 1970
}

// Append appends the encoded record.
func (d *DedupEntry) Append(dst []byte) []byte {
	dst = appendBytes(dst, 1, d.ID[:])
	return appendInt(dst, 2, d.At)
}

// Decode reads a record that Append made.
func (d *DedupEntry) Decode(b []byte) error {
	*d = DedupEntry{}
	err := eachField(b, func(f *field) {
		switch f.num {
		case 1:
			id := f.slice()
			copy(d.ID[:], id)
			f.bad = f.bad || len(id) != len(d.ID)
		case 2:
			d.At = f.int64()
		}
	})
	if err == nil && d.ID == (ID{}) {
		err = ErrCorrupt
	}
	if err != nil {
		*d = DedupEntry{}
		return fmt.Errorf("dedup record: %w", err)
	}
	return nil
}

// Key is the settings of a fairness key. Its key is ("key", queue number, fairness key).
type Key struct {
	Weight uint32 // 0: 1
	Paused bool
	// Pinned means that the settings belong to the key itself and are kept without
	// messages.
	Pinned bool
}

// Append appends the encoded record.
func (k *Key) Append(dst []byte) []byte {
	dst = appendUint(dst, 1, uint64(k.Weight))
	dst = appendBool(dst, 2, k.Paused)
	return appendBool(dst, 3, k.Pinned)
}

// Decode reads a record that Append made.
func (k *Key) Decode(b []byte) error {
	*k = Key{}
	err := eachField(b, func(f *field) {
		switch f.num {
		case 1:
			k.Weight = f.uint32()
		case 2:
			k.Paused = f.bool()
		case 3:
			k.Pinned = f.bool()
		}
	})
	if err != nil {
		*k = Key{}
		return fmt.Errorf("key record: %w", err)
	}
	return nil
}

// Throttle is the setting of a throttle. Its key is ("throttle", throttle key).
type Throttle struct {
	Rate        float64 // messages a second; 0: not limited
	Burst       uint64
	Concurrency uint64 // leases at a time; 0: not limited
}

// Append appends the encoded record.
func (t *Throttle) Append(dst []byte) []byte {
	dst = appendUint(dst, 1, math.Float64bits(t.Rate))
	dst = appendUint(dst, 2, t.Burst)
	return appendUint(dst, 3, t.Concurrency)
}

// Decode reads a record that Append made. A rate that is no number is corrupt.
func (t *Throttle) Decode(b []byte) error {
	*t = Throttle{}
	err := eachField(b, func(f *field) {
		switch f.num {
		case 1:
			t.Rate = math.Float64frombits(f.uint64())
		case 2:
			t.Burst = f.uint64()
		case 3:
			t.Concurrency = f.uint64()
		}
	})
	if err == nil && (math.IsNaN(t.Rate) || math.IsInf(t.Rate, 0) || t.Rate < 0) {
		err = ErrCorrupt
	}
	if err != nil {
		*t = Throttle{}
		return fmt.Errorf("throttle record: %w", err)
	}
	return nil
}
