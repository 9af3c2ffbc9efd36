package engine

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/generation"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/internal/yield"
	"github.com/faisca/fila/storage"
)

// The records of ends. An ack leaves a record, in the batch that removes the message, if its queue keeps what is done
// (KEEPDONE) or the consumer has given a value and the queue keeps these (RESULTTTL):
//
//	KEEPDONE  value  the record has                      it is known for
//	no        no     there is none
//	no        yes    the value                           RESULTTTL
//	yes       no     what is known of the message        KEEPDONE
//	yes       yes    both                                the longer of both
//
// So a message with a record is not in its queue, and an id is never given again. Records are in generations (package
// generation), which are as long as the longer period.

// keepsDone reports whether the queue keeps what is known of messages that are done.
func (q *queue) keepsDone() bool { return q.set.Values[queueset.KeepDone] > 0 }

// knownFor returns for how long a queue with these settings knows of the end of a message; 0: not at all.
func knownFor(set *queueset.Values, value bool) time.Duration {
	if value {
		return max(set.Duration(queueset.KeepDone), set.Duration(queueset.ResultTTL))
	}
	return set.Duration(queueset.KeepDone)
}

// keepEnd stores the record of the end of a leased message that is acked, and returns its key; nil: there is none.
func (c *core) keepEnd(m *message, value []byte) []byte {
	q := m.key.queue
	if knownFor(&q.set.Values, value != nil) == 0 {
		return nil
	}
	rec := storage.Result{Value: value, NoValue: value == nil, At: c.now}
	if value != nil {
		q.figures.Count(figures.Results, 1)
	}
	if q.keepsDone() {
		rec.Key, rec.Attempts, rec.Deliveries, rec.Consumer = m.key.name, m.attempt, m.deliveries, m.held.Name()
		rec.FirstLeasedAt = c.firstLease(m)
		if n := c.leases.notes[m]; n != nil {
			rec.Headers = n.headers.get()
		}
	}
	key := storage.AppendResultKey(make([]byte, 0, storage.ResultKeySize), q.no, c.ended.Current(c.groupOf(q, storage.Results), c.now), m.id)
	c.out.batch.Put(storage.Results, key, rec.Append(make([]byte, 0, rec.SizeMax())))
	return key
}

// firstLease returns when the first lease of a leased message began; 0: not known.
func (c *core) firstLease(m *message) int64 {
	if at := m.tied().firstLeased; at != 0 || m.deliveries != 1 || m.retrying {
		return at
	}
	return min(c.leasedAt(m), c.now) // the time of a lease may be nanoseconds ahead, see LeaseTime
}

// keepFirstLease notes when the first lease of a message began, as that lease ends.
func (c *core) keepFirstLease(m *message) {
	if m.key.queue.keepsDone() && m.tied().firstLeased == 0 {
		m.noteFirstLease(c.firstLease(m))
	}
}

// foundEnd is a record of an end, as the store has it.
type foundEnd struct {
	id    ID
	rec   storage.Result
	value []byte // that the record aliases
}

// findEnd searches generations for the record of the end of a message; nil: there is none that is known of the message.
// It runs off the loop.
func findEnd(store Store, queue uint32, ends []int64, id ID) (*foundEnd, error) {
	value, _, err := generation.Find(store, storage.Results, queue, ends, string(id[:]))
	if value == nil || err != nil {
		return nil, err
	}
	f := &foundEnd{id: id, value: value}
	if err = f.rec.Decode(value); err != nil || f.rec.Attempts == 0 {
		return nil, err
	}
	return f, nil
}

// known reports whether a queue with these settings still knows of the end.
func (f *foundEnd) known(set *queueset.Values, now int64) bool {
	return f.rec.At+int64(knownFor(set, !f.rec.NoValue)) > now
}

// endView returns a message that is done; nil if f is, or the queue does not know of it any more.
func (c *core) endView(q *queue, f *foundEnd) *View {
	if f == nil || !f.known(&q.set.Values, c.now) {
		return nil
	}
	v := &View{
		MessageInfo: MessageInfo{
			ID: f.id, Status: StatusDone, Attempt: f.rec.Attempts, Deliveries: f.rec.Deliveries, EnqueuedAt: f.id.Time(), Consumer: f.rec.Consumer, Position: -1,
		},
		Queue: q.name, Key: f.rec.Key, Priority: storage.PriorityMax - min(f.id.Rank(), storage.PriorityMax), AckedAt: unix(f.rec.At),
	}
	if f.rec.FirstLeasedAt != 0 {
		v.FirstLeasedAt = unix(f.rec.FirstLeasedAt)
	}
	v.message.Headers = f.rec.Headers
	if v.Result = f.rec.Value; v.Result == nil && !f.rec.NoValue {
		v.Result = []byte{}
	}
	return v
}

// BrowseDone returns a page of messages that are done, which are known for the KEEPDONE of the queue: the newest
// generation of records first, within it by id, the newest first. It is as Browse is, but its filter selects by header
// and by the time of the ack only. Done messages do not change: one that is known during the whole walk is seen exactly
// once.
func (tx *Tx) BrowseDone(req *Browse) (next string, list []*View, err error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return "", nil, err
	}
	if tx.atomic {
		return "", nil, errWaits
	}
	p := req.done
	if req.done = nil; p == nil || p.epoch != c.epoch || p.queue != q.no {
		at, err := parseDoneCursor(req.Cursor)
		if err == nil {
			err = req.Filter.checkDone()
		}
		if err != nil {
			return "", nil, err
		}
		req.done = &donePage{
			task: tx.task, epoch: c.epoch, queue: q.no, ends: q.results.List(), set: q.set.Values, now: c.now,
			key: req.Key, filter: req.Filter, limit: max(req.Count, 1), at: at,
		}
		c.out.jobs = append(c.out.jobs, req.done)
		return "", nil, tx.await()
	}
	if !p.read {
		req.done = p
		return "", nil, tx.await()
	}
	if p.err != nil {
		return "", nil, fmt.Errorf("browse what is done in %q: %w", req.Queue, p.err)
	}
	c.spend(len(p.found))
	for _, f := range p.found {
		if v := c.endView(q, f); v != nil {
			list = append(list, v)
		}
	}
	return p.at.cursor(), list, nil
}

// checkDone returns what is wrong with a filter of messages that are done.
func (f *Filter) checkDone() error {
	if f != nil && (len(f.Payload) > 0 || f.Error != nil || f.Origin != "") {
		return fmt.Errorf("%w: DONE goes with KEY, HEADER, SINCE and UNTIL: of a message that is done there is no payload and no error", ErrInvalid)
	}
	return f.check()
}

// matchDone reports whether a message that is done is selected, and the work beyond reading its record.
func (f *Filter) matchDone(rec *storage.Result) (ok bool, work int) {
	if f == nil {
		return true, 0
	}
	if at := rec.At / int64(time.Millisecond); at < f.Since || f.Until > 0 && at > f.Until {
		return false, 0
	}
	if f.Header == "" {
		return true, 0
	}
	for _, h := range rec.Headers {
		if string(h.Name) == f.Header {
			return glob.Match(f.Value, string(h.Value)), matchWork(f.Value, len(h.Value))
		}
	}
	return false, 0
}

// donePlace is where a page of messages that are done begins: behind this one. The zero place is the beginning.
type donePlace struct {
	generation int64
	id         ID
}

// cursor returns the text form of a place; "" for the beginning, which is that of the end as well.
func (p donePlace) cursor() string {
	if p == (donePlace{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(p.generation)), p.id[:]...))
}

// parseDoneCursor is the reverse of cursor. Anything that cursor cannot have returned is ErrInvalid.
func parseDoneCursor(cursor string) (p donePlace, err error) {
	if cursor == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	const size = 8 + len(p.id)
	if err != nil || len(b) != size || int64(binary.BigEndian.Uint64(b)) <= 0 {
		return p, fmt.Errorf("%w: CURSOR %.80q is none that FILA.BROWSE ... DONE has returned; start with 0", ErrInvalid, cursor)
	}
	p.generation = int64(binary.BigEndian.Uint64(b))
	copy(p.id[:], b[8:])
	return p, nil
}

// donePage is the off-loop job that reads a page of messages that are done.
type donePage struct {
	task   *Task
	epoch  uint64
	queue  uint32
	ends   []int64
	set    queueset.Values
	now    int64
	key    string // ""; of all keys
	filter *Filter
	limit  int // messages to look at

	found []*foundEnd
	at    donePlace // where it begins; once it was read, where the next one does
	read  bool      // the page has arrived
	err   error

	looked, size, work int
}

// searches implements searching: a page may pass over very many records.
func (p *donePage) searches() bool { return true }

// do reads the page, off the loop.
func (p *donePage) do(store Store) {
	var b yield.Breaks
	defer b.End()
	for i, began := range slices.Backward(p.ends) {
		if p.at != (donePlace{}) && began > p.at.generation || !p.mayHave(i) {
			continue
		}
		if full := p.generation(store, began, b.Take); full || p.err != nil {
			return
		}
	}
	p.at = donePlace{}
}

// mayHave reports whether a generation may have messages that the filter selects by their time, and that are known.
func (p *donePage) mayHave(i int) bool {
	last := p.now // when its last record was added
	if i+1 < len(p.ends) {
		last = p.ends[i+1]
	}
	f := p.filter
	return last+int64(knownFor(&p.set, true)) > p.now && (f == nil || last/int64(time.Millisecond) >= f.Since && (f.Until == 0 || p.ends[i]/int64(time.Millisecond) <= f.Until))
}

// generation reads the records of a generation, the newest id first, and reports whether the page is full.
func (p *donePage) generation(store Store, began int64, pause func()) (full bool) {
	prefix := storage.AppendDedupPrefix(nil, p.queue, began)
	start := storage.After(prefix)
	it := store.Scan(storage.Results, prefix, start)
	defer it.Close()
	if p.at.generation == began {
		start = storage.AppendResultKey(nil, p.queue, began, p.at.id)
	}
	for ok := it.Before(start); ok; ok = it.Before(it.Key()) {
		if p.looked >= p.limit || p.size >= pageBytes || p.work >= searchWork {
			return true
		}
		pause()
		_, _, id, err := storage.ParseResultKey(it.Key())
		if err == nil {
			err = p.look(id, it.Value)
		}
		if err != nil {
			p.err = err
			return false
		}
		p.at = donePlace{began, id}
	}
	p.err = it.Err()
	return false
}

// look looks at a record, unless its id says that it is of another key.
func (p *donePage) look(id ID, value func() []byte) error {
	if p.work += recordWork; p.key != "" && id.KeyHash() != storage.KeyHash(p.key) {
		return nil
	}
	f := &foundEnd{id: id, value: slices.Clone(value())}
	if err := f.rec.Decode(f.value); err != nil {
		return err
	}
	p.work += len(f.value)
	if f.rec.Attempts == 0 || p.key != "" && f.rec.Key != p.key || !f.known(&p.set, p.now) {
		return nil
	}
	p.looked++
	matches, work := p.filter.matchDone(&f.rec)
	if p.work += work; matches {
		p.found = append(p.found, f)
		p.size += len(f.value) + viewBytes
	}
	return nil
}

// Apply resumes the task with the page.
func (p *donePage) Apply(tx *Tx) error {
	if p.epoch == tx.core.epoch && p.task.wait != nil { // else it was concluded, or starts another page
		p.read = true
		p.task.resume(tx.core)
	}
	return nil
}
