package window

// Requests are the keys that wait for a read, and what bounds the reads of all of them. A key is in each list at most
// once if the caller adds it as Window.Request says; the caller skips a key that has ended or was read meanwhile.
type Requests[K any] struct {
	InFlight int   // reads that were issued and have not ended
	PausedTo int64 // Unix nanoseconds before which no read is issued

	prefetch  []K          // their windows run low
	urgent    []K          // their windows are empty: they are read first
	failed    int          // consecutive reads that failed
	backedOff []resting[K] // in the order of their times
}

// resting is a key whose last read failed.
type resting[K any] struct {
	key   K
	read  *Read[Place] // what its window has returned: it resumes with it
	until int64        // Unix nanoseconds
}

// Prefetch adds a key whose window runs low.
func (q *Requests[K]) Prefetch(k K) { q.prefetch = append(q.prefetch, k) }

// Urgent adds a key whose window is empty.
func (q *Requests[K]) Urgent(k K) { q.urgent = append(q.urgent, k) }

// Waiting returns how many entries wait to be issued, in either list.
func (q *Requests[K]) Waiting() (prefetch, urgent int) { return len(q.prefetch), len(q.urgent) }

// Next removes the key that is read next. Urgent ones come first, whatever memory holds, since they could not deliver
// otherwise; the others only if memory allows it.
func (q *Requests[K]) Next(memory bool) (k K, urgent, ok bool) {
	switch {
	case len(q.urgent) > 0:
		k, q.urgent = q.urgent[0], q.urgent[1:]
		return k, true, true
	case len(q.prefetch) > 0 && memory:
		k, q.prefetch = q.prefetch[0], q.prefetch[1:]
		return k, false, true
	default:
		return k, false, false
	}
}

// MostUrgent returns the key that Next removes, if it is urgent.
func (q *Requests[K]) MostUrgent() (k K, ok bool) {
	if len(q.urgent) == 0 {
		return k, false
	}
	return q.urgent[0], true
}

// Succeeded notes that a read has succeeded.
func (q *Requests[K]) Succeeded() { q.failed = 0 }

// Failed notes that a read has failed. When most have failed in a row it is the disk, and none is issued before the time.
func (q *Requests[K]) Failed(most int, until int64) {
	if q.failed++; q.failed >= most {
		q.PausedTo = until
	}
}

// Failing returns how many reads have failed since the last one that has not, and how many keys back off.
func (q *Requests[K]) Failing() (inARow, backedOff int) { return q.failed, len(q.backedOff) }

// BackOff makes the next read of a key wait until a time; read is what its window has returned.
func (q *Requests[K]) BackOff(k K, read *Read[Place], until int64) {
	q.backedOff = append(q.backedOff, resting[K]{k, read, until})
}

// Resume removes a key whose time has come, and returns what its window resumes with; ok is false if there is none.
func (q *Requests[K]) Resume(now int64) (k K, read *Read[Place], ok bool) {
	if len(q.backedOff) == 0 || q.backedOff[0].until > now {
		return k, nil, false
	}
	r := q.backedOff[0]
	q.backedOff = q.backedOff[1:]
	return r.key, r.read, true
}

// NextAt returns when reads may be issued again, or the first key that backs off may be read again; none if neither
// is to come.
func (q *Requests[K]) NextAt(now, none int64) int64 {
	at := none
	if q.PausedTo > now {
		at = q.PausedTo
	}
	if len(q.backedOff) > 0 {
		at = min(at, q.backedOff[0].until)
	}
	return at
}
