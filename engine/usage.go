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
	for steps := count + gaps; cursor < uint64(c.nextQueue); cursor++ {
		if count <= 0 || steps <= 0 {
			return cursor, names
		}
		steps--
		if q := c.byNumber[uint32(min(cursor, math.MaxUint32))]; q != nil {
			count--
			if match(q.name) {
				names = append(names, q.name)
			}
		}
	}
	return 0, names
}

// HasQueue reports whether there is a queue of that name.
func (tx *Tx) HasQueue(name string) bool { return tx.core.queues[name] != nil }

// QueueMemory estimates the bytes of memory that a queue takes. What it has on
// disk only takes none. The sizes of payloads are those of the messages of up to
// samples fairness keys, 0 for all of them.
func (tx *Tx) QueueMemory(name string, samples int) (int64, error) {
	q, err := tx.core.queueNamed(name)
	if err != nil {
		return 0, err
	}
	const perMap = 48 // of an entry of a map, about
	all := samples == 0
	var messages, seen, bodies int64
	total := int64(unsafe.Sizeof(*q)) + int64(len(name)) + perMap
	q.roster.walk(0, math.MaxInt, func(k *fairKey) {
		total += int64(unsafe.Sizeof(*k)) + int64(len(k.name)) + perMap
		messages += int64(len(k.window))
		if !all && samples == 0 {
			return
		}
		samples--
		seen += int64(len(k.window))
		for _, m := range k.window {
			bodies += int64(len(m.body))
		}
	})
	messages += q.leased
	total += messages * (int64(unsafe.Sizeof(message{})) + perMap)
	if seen > 0 {
		total += bodies * messages / seen
	}
	return total, nil
}
