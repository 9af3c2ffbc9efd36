// Package changes records what happens to the messages of a queue while others read them from the store. A reader opens
// the log, reads off the loop, and asks then for each message that it has found what has become of it since. So traffic
// does not keep a read from completing; it pays for that with an entry for every change meanwhile. The package knows no
// messages: what has changed of one is the caller's.
//
//	no readers ──Open──▶ recording ──the last Close──▶ no readers, nothing is recorded
//	recording ──too many entries, or too many bytes──▶ lost: the reads under way have to be repeated
package changes

import "github.com/faisca/fila/storage"

// Max bounds the entries of a log. When there are more and another reader opens it, they are dropped, and the
// reads under way then have to be repeated. So it can be exceeded only by the changes during one read. BytesMax bounds
// what entries hold in addition: they are dropped at once when it is more.
const (
	Max      = 100_000
	BytesMax = 16 << 20
)

// Log is the log of a queue. Of a message that has changed it has a D. The zero value is ready for use.
type Log[D any] struct {
	readers int
	seq     Place // of the newest change
	byID    map[storage.ID]*entry[D]
	lost    Place // change at which entries were dropped
	bytes   int
}

type entry[D any] struct {
	gone Place // the last change that removed the message from the queue; 0: none
	d    D
}

// Place is a place in a log.
type Place uint64

// Open begins to record for a reader, and returns where. Close must follow.
func (l *Log[D]) Open() Place {
	l.readers++
	if len(l.byID) > Max {
		l.lose()
	}
	return l.seq
}

// Close ends what Open has begun. With the last reader the entries are dropped.
func (l *Log[D]) Close() {
	if l.readers--; l.readers == 0 {
		l.Drop()
	}
}

// Drop drops the entries of a log whose readers are not going to use it, since the queue has lost its messages.
func (l *Log[D]) Drop() { l.byID, l.bytes = nil, 0 }

// lose drops the entries: the reads under way have to be repeated.
func (l *Log[D]) lose() {
	l.Drop()
	l.lost = l.seq
}

// Readers returns how many readers there are.
func (l *Log[D]) Readers() int { return l.readers }

// Complete reports whether no change since a place was dropped.
func (l *Log[D]) Complete(since Place) bool { return since >= l.lost }

// Change returns what the log has of a message that is changing, to be changed, or nil if it has no readers.
func (l *Log[D]) Change(id storage.ID) *D {
	if l.readers == 0 {
		return nil
	}
	return &l.entry(id).d
}

func (l *Log[D]) entry(id storage.ID) *entry[D] {
	l.seq++
	e := l.byID[id]
	if e == nil {
		if l.byID == nil {
			l.byID = map[storage.ID]*entry[D]{}
		}
		e = new(entry[D])
		l.byID[id] = e
	}
	return e
}

// Gone records that a message was removed from the queue. If it comes back, earlier readers treat it as another one.
func (l *Log[D]) Gone(id storage.ID) {
	if l.readers > 0 {
		*l.entry(id) = entry[D]{gone: l.seq}
	}
}

// Hold counts n bytes that a change is going to hold, and reports whether it may: else all entries were dropped.
func (l *Log[D]) Hold(n int) bool {
	if l.bytes += n; l.bytes > BytesMax {
		l.lose()
		return false
	}
	return true
}

// Since returns what the log has of a message, nil if it has nothing, and whether the message was removed since a place,
// which must be Complete.
func (l *Log[D]) Since(id storage.ID, place Place) (d *D, gone bool) {
	e := l.byID[id]
	if e == nil {
		return nil, false
	}
	return &e.d, e.gone > place
}
