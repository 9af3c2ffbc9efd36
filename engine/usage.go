package engine

import (
	"math"
	"unsafe"
)

// ScanQueues walks over the queues in the order in which they were made, which
// recovery does not change: a cursor stays good across restarts. It returns the
// next cursor, 0 at the end. A page has at most count names and may have fewer,
// or none, before the end: deleted queues leave gaps, of which a page passes a
// bounded number.
func (tx *Tx) ScanQueues(cursor uint64, count int, match func(string) bool) (next uint64, names []string) {
	c := tx.core
	const gaps = 4096
	for steps := count + gaps; cursor < uint64(c.queues.nextNumber); cursor++ {
		if count <= 0 || steps <= 0 {
			return cursor, names
		}
		steps--
		if q := c.queues.byNumber[uint32(min(cursor, math.MaxUint32))]; q != nil {
			count--
			if match(q.name) {
				names = append(names, q.name)
			}
		}
	}
	return 0, names
}

// HasQueue reports whether there is a queue of that name.
func (tx *Tx) HasQueue(name string) bool { return tx.core.queues.byName[name] != nil }

// QueueMemory asks for the bytes of memory that a queue takes. What it has on disk only
// takes none. The sizes of payloads are those of the messages of up to Samples fairness
// keys, 0 for all of them.
type QueueMemory struct {
	Queue   string
	Samples int

	under                   bool
	epoch, cursor           uint64
	samples                 int
	keys                    int64 // bytes
	messages, seen, payload int64
}

const (
	perMap = 48 // bytes of an entry of a map, about
	// memoryPart is how many keys count for a unit of work.
	memoryPart = 8
)

// QueueMemory estimates the bytes. Of a queue of very many keys it does so over several
// turns.
func (tx *Tx) QueueMemory(req *QueueMemory) (int64, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return 0, err
	}
	if !req.under || req.epoch != c.epoch {
		*req = QueueMemory{Queue: req.Queue, Samples: req.Samples, under: true, epoch: c.epoch, samples: req.Samples}
	}
	n, yields := 0, false
	req.cursor = q.roster.walkWhile(req.cursor, func(k *fairKey) bool {
		if yields = n%memoryPart == 0 && !tx.more(); yields {
			return false
		}
		n++
		if req.add(k) {
			c.spend(len(k.window) / memoryPart)
		}
		return true
	})
	if yields {
		return 0, tx.yield()
	}
	req.under = false
	messages := req.messages + q.leased
	total := int64(unsafe.Sizeof(*q)) + int64(len(q.name)) + perMap + req.keys + messages*(int64(unsafe.Sizeof(message{}))+perMap)
	if req.seen > 0 {
		total += req.payload * messages / req.seen
	}
	return total, nil
}

// add adds what a key takes, and reports whether it was one of the samples.
func (req *QueueMemory) add(k *fairKey) bool {
	req.keys += int64(unsafe.Sizeof(*k)) + int64(len(k.name)) + perMap
	req.messages += int64(len(k.window))
	if req.Samples != 0 && req.samples == 0 {
		return false
	}
	req.samples--
	req.seen += int64(len(k.window))
	for _, m := range k.window {
		req.payload += int64(len(m.body))
	}
	return true
}
