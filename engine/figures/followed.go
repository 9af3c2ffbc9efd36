package figures

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faisca/fila/engine/internal/timeline"
	"github.com/faisca/fila/storage"
)

// Followed is a fairness key of which a history is kept. Of a queue with very many keys only some are, so that neither
// memory nor the work of a step grows with the number of keys:
//
//	not followed → followed   its deliveries of this minute, or its messages, exceed aimed (Rises, Follow); or a client
//	                          asks for its history (Watch)
//	followed → not followed   there is no room for a busier one, or it has had no message for an hour
//
// While there is room, each key is followed as soon as it has a message. With FollowedOfQueueMax keys of the queue, or
// FollowedMax of all, another one takes the place of the least busy key, if it is at least twice as busy, which keeps keys
// of about the same load from taking turns. A queue replaces at most replacedMax keys in a step. Keys that were asked
// for in the last WatchedFor stay.
//
// A delivery costs a comparison, an ack and the end of a message one each, and an enqueue one where the number of
// messages has doubled, and now and then. A sweep looks at all keys, too. What a followed key holds is looked at once in a step.
type Followed struct {
	Name string
	Hash uint64

	queue   *Queue
	slot    uint32
	key     *Key // nil: it has no messages
	since   uint32
	watched int64  // until then it stays, Unix nanoseconds
	score   uint64 // how busy it is

	// Counters of the history, which go on over restarts. Those of enqueued and delivered messages are as of the last look: what
	// has happened since is what the sums below have grown by.
	enqueued, delivered, acked uint64
	left, came                 uint64 // messages that have left the key; those and what it held, when it was looked at
	took                       uint64 // key.Delivered, when it was looked at

	lines   timeline.Lines[keyValues]
	written uint32 // the last step that a record has
	stored  bool   // there is a record
}

// Bounds of followed keys.
const (
	FollowedOfQueueMax = 64              // of a queue
	FollowedMax        = 4096            // of all queues
	WatchedFor         = 5 * time.Minute // how long a key stays that was asked for

	replacedMax = 8      // keys of a queue that are replaced in a step
	aimHigh     = 2      // how many times as busy a key has to be that takes the place of another
	aimMore     = 8      // and by how much more
	handMost    = 8      // places that are looked at for one to free
	idleFor     = 60 * 6 // steps after which a key without messages is not followed any more
)

// KeyHolds is what a fairness key holds.
type KeyHolds struct {
	Total, Ready, Delayed, Leased int64
	Since                         int64 // when its first message in memory became ready, Unix nanoseconds; 0: there is none
}

// KeyNumbers are what a history has of a fairness key.
type KeyNumbers struct {
	Enqueued, Delivered, Acked uint64 // messages that it was given, in whatever way; deliveries; acks
	Ready, Delayed, Leased     int64
}

// KeyMoment is what a fairness key had done and held at one time.
type KeyMoment struct {
	At time.Time
	KeyNumbers
	ReadySince time.Time // when its first message became ready; zero: there was none in memory
	OfQueue    uint64    // deliveries of the queue
}

// keyValues are numbers of a key as they are stored: counters, messages, and since when the first one is ready, in
// milliseconds since 1970 modulo 2^32; 0: there is none.
type keyValues [7]uint32

func (v *keyValues) slice() []uint32 { return v[:] }

// moment returns the numbers that were stored, at the beginning of a step; counters are now those of n.
func (v *keyValues) moment(begin int64, n KeyNumbers) KeyMoment {
	m := KeyMoment{At: time.Unix(0, begin), KeyNumbers: KeyNumbers{
		grown(v[0], n.Enqueued), grown(v[1], n.Delivered), grown(v[2], n.Acked), int64(v[3]), int64(v[4]), int64(v[5]),
	}}
	if v[6] != 0 {
		if waits := uint32(begin/int64(time.Millisecond)) - v[6]; waits < math.MaxInt32 { // else the look was later than the beginning
			m.ReadySince = m.At.Add(-time.Duration(waits) * time.Millisecond)
		}
	}
	return m
}

// values are those of the key, which was looked at.
func (f *Followed) values(h *KeyHolds) keyValues {
	v := keyValues{uint32(f.enqueued), uint32(f.delivered), uint32(f.acked), bounded(h.Ready), bounded(h.Delayed), bounded(h.Leased)}
	if h.Since != 0 {
		v[6] = max(uint32(h.Since/int64(time.Millisecond)), 1)
	}
	return v
}

// look takes over what has happened since the last look; the key holds so many messages now.
func (f *Followed) look(total int64) {
	if f.key == nil {
		return
	}
	came := uint64(total) + f.left
	f.enqueued += uint64(max(int64(came-f.came), 0))
	f.delivered += f.key.Delivered - f.took
	f.came, f.took = came, f.key.Delivered
}

// leave ends the time in which the key has messages, of which so many are left that nothing counts any more.
func (f *Followed) leave(total int64) {
	f.look(total)
	if f.key != nil {
		f.key.slot = 0
	}
	f.key, f.left, f.came, f.took = nil, 0, 0, 0
}

// followTable is the followed keys of all queues. Key.slot is an index of it.
type followTable struct {
	slots []*Followed // the first one is not used; nil: free
	free  []uint32
	n     int
	of    int // queues that have some
	hand  int // where the search for one to free goes on
	gone  []Gone
}

// Gone is a key that is not followed any more and has a record.
type Gone struct{ Queue, Key string }

// followedKeys are those of a queue.
type followedKeys struct {
	list     []*Followed
	byHash   map[uint64]*Followed
	aimed    uint64 // how busy a key is at most that cannot be followed
	replaced int    // in this step
}

func (t *followTable) at(slot uint32) *Followed { return t.slots[slot] }

// find returns a followed key by its name, nil if it is not followed.
func (l *followedKeys) find(hash uint64, name string) *Followed {
	if f := l.byHash[hash]; f != nil && f.Name == name {
		return f
	}
	return nil
}

// enter begins the time in which a followed key has messages. It has none yet.
func (l *followedKeys) enter(k *Key, hash uint64, name string) {
	if f := l.find(hash, name); f != nil {
		f.key, f.took, k.slot = k, k.Delivered, f.slot
	}
}

// detach forgets the Keys, of which a recovery makes others. What has happened since the last look is lost.
func (l *followedKeys) detach() {
	for _, f := range l.list {
		f.key, f.left, f.came, f.took, f.written = nil, 0, 0, 0, 0
	}
}

func (l *followedKeys) moveTo(q *Queue) {
	for _, f := range l.list {
		f.queue = q
	}
}

// gone ends the time in which the keys have messages: a purge has detached them.
func (l *followedKeys) gone(look func(f *Followed) KeyHolds) {
	for _, f := range l.list {
		if f.key != nil {
			f.leave(look(f).Total)
		}
	}
}

// Rises reports whether a key that is this busy is to be followed (Follow).
func (q *Queue) Rises(k *Key, score uint64) bool { return score > q.followed.aimed && k.slot == 0 }

// Lately returns the cost that was delivered of a key in this minute, at least.
func (k *Key) Lately() uint64 { return k.share.cur }

// score returns how busy a key is: what it delivered lately, and holds.
func (k *Key) score(now, total int64) uint64 {
	return uint64(k.share.value(now)) + uint64(max(total, 0))
}

// Follow follows a key that holds so many messages, if there is room or it is busy enough.
func (q *Queue) Follow(k *Key, name string, hash uint64, total, now int64) {
	if f := q.follow(name, hash, k.score(now, total), now); f != nil {
		f.hold(k, total)
	}
	q.aim(now)
}

// hold says that a key that begins to be followed has messages, which it has been given.
func (f *Followed) hold(k *Key, total int64) {
	f.enqueued = uint64(max(total, 0))
	f.key, k.slot, f.came, f.took = k, f.slot, uint64(total), k.Delivered
}

// Watch follows a key that a client asks for, and keeps it for some time. k is nil if it has no messages. It returns nil if
// all places are taken by keys that are asked for.
func (q *Queue) Watch(k *Key, name string, hash uint64, total, now int64) *Followed {
	f := q.followed.find(hash, name)
	if f == nil {
		if f = q.follow(name, hash, math.MaxUint64, now); f == nil {
			return nil
		}
		if f.score = 0; k != nil {
			f.hold(k, total)
		}
		q.aim(now)
	}
	f.watched = now + int64(WatchedFor)
	return f
}

// follow makes room for a key that is this busy, and follows it; nil: there is none.
func (q *Queue) follow(name string, hash, score uint64, now int64) *Followed {
	l, t := &q.followed, &q.all.follows
	switch {
	case l.byHash[hash] != nil: // it has the hash of another
		return nil
	case len(l.list) >= FollowedOfQueueMax:
		least := l.least(now)
		if least == nil || score <= least.least() {
			return nil
		}
		t.drop(least)
		l.replaced++
	case t.n >= FollowedMax:
		if !t.makeRoom(q, now) {
			return nil
		}
		l.replaced++
	}
	f := &Followed{Name: name, Hash: hash, queue: q, score: score, since: timeline.StepAt(now) + 1}
	t.add(f)
	return f
}

// least returns how busy a key may be at most that does not take its place.
func (f *Followed) least() uint64 {
	if f.score > math.MaxUint64/(2*aimHigh) {
		return f.score
	}
	return aimHigh*f.score + aimMore
}

// least returns the least busy key that is not watched; nil: all are.
func (l *followedKeys) least(now int64) (least *Followed) {
	for _, f := range l.list {
		if f.watched <= now && (least == nil || f.score < least.score) {
			least = f
		}
	}
	return least
}

// makeRoom stops following a key of a queue that has more than its part of the table, if the queue has less than its
// own. It looks at a few places only.
func (t *followTable) makeRoom(q *Queue, now int64) bool {
	part := max(FollowedMax/max(t.of, 1), 1)
	if len(q.followed.list) >= part {
		return false
	}
	for range handMost {
		t.hand = t.hand%(len(t.slots)-1) + 1
		if f := t.slots[t.hand]; f != nil && f.watched <= now && len(f.queue.followed.list) > part-1 && f.queue != q {
			if f = f.queue.followed.least(now); f != nil {
				t.drop(f)
				return true
			}
		}
	}
	return false
}

// aim sets how busy a key has to be to be followed.
func (q *Queue) aim(now int64) {
	switch l := &q.followed; {
	case l.replaced >= replacedMax:
		l.aimed = math.MaxUint64
	case len(l.list) < FollowedOfQueueMax && q.all.follows.n < FollowedMax:
		l.aimed = 0
	case len(l.list) < FollowedOfQueueMax:
		if l.aimed = 0; len(l.list) >= FollowedMax/max(q.all.follows.of, 1) {
			l.aimed = math.MaxUint64
		}
	default:
		l.aimed = math.MaxUint64
		if f := l.least(now); f != nil {
			l.aimed = f.least()
		}
	}
}

func (t *followTable) add(f *Followed) {
	if len(t.slots) == 0 {
		t.slots = []*Followed{nil}
	}
	if n := len(t.free); n > 0 {
		f.slot, t.free = t.free[n-1], t.free[:n-1]
		t.slots[f.slot] = f
	} else {
		f.slot = uint32(len(t.slots))
		t.slots = append(t.slots, f)
	}
	l := &f.queue.followed
	if l.byHash == nil {
		l.byHash = map[uint64]*Followed{}
	}
	if len(l.list) == 0 {
		t.of++
	}
	l.list, l.byHash[f.Hash] = append(l.list, f), f
	t.n++
}

// drop stops following a key.
func (t *followTable) drop(f *Followed) {
	if f.key != nil {
		f.key.slot = 0
	}
	if f.stored {
		t.gone = append(t.gone, Gone{f.queue.name, f.Name})
	}
	l := &f.queue.followed
	at := slices.Index(l.list, f)
	l.list = slices.Delete(l.list, at, at+1)
	delete(l.byHash, f.Hash)
	if len(l.list) == 0 {
		t.of--
	}
	t.slots[f.slot] = nil
	t.free = append(t.free, f.slot)
	t.n--
}

// dropAll stops following the keys of a queue that is deleted, and its records with it.
func (t *followTable) dropAll(l *followedKeys) {
	for len(l.list) > 0 {
		f := l.list[len(l.list)-1]
		f.stored = false
		t.drop(f)
	}
}

// record records the keys of a queue, and stops following those that have been without messages for long.
func (l *followedKeys) record(h *History, now int64, look func(f *Followed) KeyHolds) {
	l.replaced = 0                              // it is another step
	for _, f := range slices.Backward(l.list) { // drop moves only those behind it
		var holds KeyHolds
		if f.score = 0; f.key != nil {
			holds = look(f)
			f.look(holds.Total)
			f.score = f.key.score(now, holds.Total)
		}
		f.lines.Set(timeline.Minutes, max(h.from(), min(f.since, h.step)), h.step, f.values(&holds))
		if f.key == nil && f.watched <= now && h.step-min(max(f.lines.Changed(), f.since), h.step) > idleFor {
			f.queue.all.follows.drop(f)
		}
	}
}

// Acked counts an ack of a message of a key.
func (q *Queue) Acked(k *Key) {
	q.Count(Acked, 1)
	if k.slot != 0 {
		q.all.follows.at(k.slot).acked++
	}
}

// Left counts a message that has left a key, and the queue.
func (q *Queue) Left(k *Key) {
	q.Change(Messages{Total: -1})
	if k.slot != 0 {
		q.all.follows.at(k.slot).left++
	}
}

// Found counts messages of a key that had been there before the start.
func (q *Queue) Found(k *Key, n int64) {
	if k.slot != 0 {
		q.all.follows.at(k.slot).came += uint64(n)
	}
}

// Followed returns how many keys of the queue are followed.
func (q *Queue) Followed() int { return len(q.followed.list) }

// Follows reports whether a key is followed.
func (q *Queue) Follows(hash uint64, name string) bool { return q.followed.find(hash, name) != nil }

// OfKey returns the moments of a followed key in the last steps of ten seconds, an hour at most, the oldest first.
func (h *History) OfKey(f *Followed, last uint32) (list []KeyMoment) {
	n, all := KeyNumbers{Enqueued: f.enqueued, Delivered: f.delivered, Acked: f.acked}, f.queue.numbers()
	for _, p := range h.known(max(f.since, h.begun)).Places(last, timeline.Minutes) {
		v, _ := f.lines.At(p.Resolution, p.Step)
		m := v.moment(timeline.Begin(p.Begin()), n)
		m.OfQueue = at(&f.queue.lines, p.Resolution, p.Step, all).Delivered
		list = append(list, m)
	}
	return list
}

// EachChanged calls fn with the record of each followed key of the queue that has changed since its last one.
func (q *Queue) EachChanged(fn func(key string, rec *storage.History)) {
	for _, f := range q.followed.list {
		if at := f.lines.Changed(); at > f.written {
			f.written, f.stored = at, true
			fn(f.Name, record(&f.lines, f.since, (*keyValues).slice))
		}
	}
}

// TakeGone returns keys that are not followed any more and have a record, and forgets them.
func (a *All) TakeGone() []Gone {
	gone := a.follows.gone
	a.follows.gone = nil
	return gone
}

// RestoreKey follows a key again at a start. It reports whether there is room for it.
func (q *Queue) RestoreKey(name string, hash uint64, rec *storage.History) bool {
	f := &Followed{Name: name, Hash: hash, queue: q, since: rec.Begun, stored: true}
	if q.followed.byHash[hash] != nil || len(q.followed.list) >= FollowedOfQueueMax || q.all.follows.n >= FollowedMax || !restore(&f.lines, rec, (*keyValues).slice) {
		return false
	}
	v := f.lines.Last()
	f.enqueued, f.delivered, f.acked, f.written = uint64(v[0]), uint64(v[1]), uint64(v[2]), f.lines.Changed()
	q.all.follows.add(f)
	return true
}

// check verifies the followed keys of all queues (43).
func (t *followTable) check(queues []*Queue) error {
	n, of := 0, 0
	for _, q := range queues {
		l := &q.followed
		if len(l.list) > 0 {
			of++
		}
		if len(l.list) > FollowedOfQueueMax || len(l.list) != len(l.byHash) {
			return fmt.Errorf("%d keys of %q are followed, %d are found", len(l.list), q.name, len(l.byHash))
		}
		for _, f := range l.list {
			n++
			if f.queue != q || l.find(f.Hash, f.Name) != f || t.at(f.slot) != f || f.key != nil && f.key.slot != f.slot {
				return fmt.Errorf("the followed key %q of %q is not found", f.Name, q.name)
			}
		}
	}
	if n != t.n || n > FollowedMax || of != t.of || n+len(t.free) != max(len(t.slots)-1, 0) {
		return fmt.Errorf("%d keys of %d queues are followed, %d of %d are counted, in %d places of which %d are free", n, of, t.n, t.of, len(t.slots), len(t.free))
	}
	return nil
}
