package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/group"
	"github.com/faisca/fila/engine/internal/generation"
	"github.com/faisca/fila/engine/internal/keytable"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/storage"
)

// What happens when members of groups end.
//
// Each end of a message goes through memberEnded, or Move of package group where a message dies or is redriven. That may
// be the end of its group, which is then over. endOver follows each task, and each step of a turn that ends messages: it
// enqueues the messages of the groups that are over. So a message of a group is in the batch of the end of the last
// member, and the record of the group goes in the same one: a crash finds both or neither. A group that a crash finds
// sealed without pending members has lost these to a purge, which ends members some time after its batch; recovery lists
// it as over.
//
// At the end of a group nothing refuses its message: neither depth, pause nor credits are asked, as for a dead letter. If
// its queue does not exist, the group is cancelled.
//
// Members of a cancelled group are removed in three ways. One that comes to the head of its key is removed in place of a
// delivery (removeAtHead), so that none is delivered from the reply on. One whose lease ends without an ack or a death is
// removed then. All others are found by a sweep, which reads the queue page by page.

// groupTable is the component of groups.
type groupTable struct {
	group.Table
	kept  *generation.Group                      // those of groups that have come to their end
	ended recent.Table[string, storage.GroupEnd] // of recent batches

	messages map[uint64]heldMessage // of the newest groups, and of those that the store may not have
	order    []uint64               // their numbers, the oldest first, also of some that are gone
	bytes    int                    // of messages

	retryAt int64          // when groups are finished again whose message could not be read
	failed  []*group.Group // these

	sweeps  map[uint32]*groupSweep // by number of the queue
	line    []*groupSweep          // the same, in the order of their next pages
	page    *page                  // of the first one; nil: none is being read
	sweepAt int64                  // no page before this time

	opened, done, cancelled uint64
}

// heldMessage is a storage.GroupMessage in memory.
type heldMessage struct {
	record []byte
	batch  uint64 // that writes it
}

const (
	// groupMessagesMax bounds the bytes of messages of groups in memory that the store has.
	groupMessagesMax = 16 << 20
	// A page of a sweep looks at so many messages, and removes so many.
	sweepLook = 4096
	sweepPage = 512
	// groupsAtOnce is how many groups come to their end behind one task.
	groupsAtOnce = turnUnits
)

func (t *groupTable) reset() {
	opened, done, cancelled := t.opened, t.done, t.cancelled
	*t = groupTable{messages: map[uint64]heldMessage{}, sweeps: map[uint32]*groupSweep{}, opened: opened, done: done, cancelled: cancelled}
	t.Reset()
}

// next returns when a group expires, a group is finished again, or a page of a sweep is read.
func (t *groupTable) next(c *core) int64 {
	at := int64(never)
	if g := t.NextExpiry(); g != nil {
		at = g.ExpireAt
	}
	if len(t.failed) > 0 {
		at = min(at, t.retryAt)
	}
	if len(t.line) > 0 && t.page == nil {
		at = min(at, max(t.sweepAt, c.reads.pausedUntil))
	}
	return at
}

// expire cancels the groups that have expired, within the budget.
func (t *groupTable) expire(c *core) {
	for g := t.NextExpiry(); g != nil && g.ExpireAt <= c.now && c.room(); g = t.NextExpiry() {
		c.spend(1)
		t.cancel(c, g, "it has expired")
	}
	if len(t.failed) > 0 && t.retryAt <= c.now {
		all := t.failed
		t.failed = nil
		for _, g := range all {
			t.Postpone(g)
		}
	}
	c.spend(t.ended.Prune(c.now, c.out.committed, max(c.tasks.budget.left, 0)))
	t.drop(c)
	t.sweepNext(c)
}

// hold keeps the message of a group in memory, at least until the store has it.
func (t *groupTable) hold(number uint64, record []byte, batch uint64) {
	t.messages[number] = heldMessage{record, batch}
	t.order = append(t.order, number)
	t.bytes += len(record)
}

// drop drops the oldest messages that the store has, if there are too many.
func (t *groupTable) drop(c *core) {
	if n := len(t.order); n > 2*len(t.messages)+sweepLook { // most of them are gone
		c.spend(n / sweepPage)
		t.order = slices.DeleteFunc(t.order, func(number uint64) bool { return t.messages[number].record == nil })
	}
	for len(t.order) > 0 {
		number := t.order[0]
		m, held := t.messages[number]
		if held && (t.bytes <= groupMessagesMax || m.batch > c.out.committed) {
			return
		}
		t.release(number)
		t.order = t.order[1:]
	}
	t.order = nil
}

// release drops the message of a group.
func (t *groupTable) release(number uint64) {
	t.bytes -= len(t.messages[number].record)
	delete(t.messages, number)
}

// writeRecords writes the records that have changed since the last cut.
func (t *groupTable) writeRecords(c *core) {
	t.Records(func(key, value []byte) { c.out.batch.Put(storage.State, key, value) }, func(key []byte) { c.out.batch.Delete(storage.State, key) })
}

// memberEnded ends a message that is removed from its queue as a member of its group, if it is one.
func (t *groupTable) memberEnded(m *message, how group.End) {
	if m.ties != nil && m.ties.member != 0 {
		t.End(m.ties.member, m.key.queue.no, m.ties.died, how)
	}
}

// move has a member that moves into another queue counted there, with the record that it gets there.
func (t *groupTable) move(m *message, to *queue, rec *storage.Message) {
	if rec.MemberOf == 0 {
		return
	}
	dies := rec.Dead != nil
	if !t.Move(rec.MemberOf, m.key.queue.no, to.no, rec.Died, dies) {
		rec.MemberOf, dies = 0, false
	}
	rec.Died = dies
}

// inherit makes the message of a request that takes the place of a member one.
func (t *groupTable) inherit(req *Enqueue, old *message) {
	if req.MemberOf = old.tied().member; req.MemberOf != 0 {
		req.record = storage.AppendMember(req.record, req.MemberOf)
	}
}

// nameOf returns the name of the group of a message; "": it is a member of none, or the group has come to its end.
func (t *groupTable) nameOf(m *message) string {
	if g := t.Numbered(m.tied().member); g != nil {
		return g.Name
	}
	return ""
}

// cancels reports whether a message is a member of a cancelled group, and so is removed rather than delivered.
func (t *groupTable) cancels(m *message) bool {
	return m.ties != nil && m.ties.member != 0 && !m.ties.died && t.Cancels(m.ties.member)
}

// sweeping reports whether a queue may have members of cancelled groups that are not leased. Their unique ids are free.
func (t *groupTable) sweeping(q *queue) bool { return t.sweeps[q.no] != nil }

// cancelMember removes a message that is in no structure, since its group is cancelled.
func (t *groupTable) cancelMember(c *core, m *message) {
	m.key.queue.figures.Count(figures.Cancelled, 1)
	c.out.sync = true
	t.memberEnded(m, group.Cancelled)
	c.remove(m)
}

// removeAtHead removes a message at the head of its key whose time to live has passed, or whose group is cancelled.
func (t *groupTable) removeAtHead(c *core, m *message) {
	if !t.cancels(m) {
		c.endTTLAtHead(m)
		return
	}
	k := m.key
	k.window.Remove(m.Position())
	c.heads.messages--
	t.cancelMember(c, m)
	c.settle(k)
}

// ends reports whether a message is removed rather than delivered.
func (t *groupTable) ends(c *core, m *message) bool { return c.ttlExpired(m) || t.cancels(m) }

// expireWaiting is expireMessage of one that was not leased: a member of a cancelled group is removed.
func (t *groupTable) expireWaiting(c *core, m *message) {
	if t.cancels(m) {
		t.cancelMember(c, m)
	} else {
		c.expireMessage(m)
	}
}

// endOver finishes the groups that are over. While the store takes no writes, none comes to be.
func (t *groupTable) endOver(c *core) {
	if t.AnyOver() && c.health.failed == nil {
		for range groupsAtOnce {
			g := t.Over()
			if g == nil {
				break
			}
			c.spend(4)
			t.end(c, g)
		}
		c.tasks.unfinished = true // consumers may wait for the messages
	}
}

// end finishes a group that is over: its message is enqueued, unless it is cancelled, and what is kept of it is written.
func (t *groupTable) end(c *core, g *group.Group) {
	var id ID
	if !g.IsCancelled() {
		m, err := t.enqueue(c, g)
		switch {
		case errors.Is(err, errGroupEnd):
			t.cancel(c, g, err.Error())
		case err != nil:
			c.cfg.Log.Error().Err(err).Str("group", g.Name).Msg("the message of a group cannot be read, retrying later")
			t.failed, t.retryAt = append(t.failed, g), c.now+int64(c.cfg.RetryInterval)
			return
		default:
			id = m
		}
	}
	end := storage.GroupEnd{
		Number: g.Number(), Cancelled: g.IsCancelled(), Done: g.Done, Dead: g.Dead, CancelledNumber: g.Cancelled, Message: id, Error: g.Error,
		OpenedAt: g.OpenedAt, SealedAt: g.SealedAt, EndedAt: c.now, Queue: g.Queue,
	}
	if end.Cancelled {
		end.EndedAt = g.CancelledAt
		t.cancelled++
	} else {
		t.done++
	}
	c.out.batch.Delete(storage.State, storage.AppendGroupMessageKey(nil, g.Number()))
	c.out.batch.Put(storage.State, storage.AppendGroupEndKey(nil, c.ended.Current(t.kept, c.now), g.Name), end.Append(nil))
	t.ended.Add(g.Name, end, c.out.batchNo, c.now)
	t.release(g.Number())
	t.Finish(g)
	c.out.sync = true
}

// errGroupEnd is wrapped by errors that cancel a group which would be done.
var errGroupEnd = errors.New("the message of the group was not enqueued")

// message returns the message of a group.
func (t *groupTable) message(c *core, g *group.Group) (rec storage.GroupMessage, m storage.Message, err error) {
	record := t.messages[g.Number()].record
	if record == nil {
		if record, err = c.store.Get(storage.State, storage.AppendGroupMessageKey(nil, g.Number())); err != nil {
			return rec, m, err
		}
		c.spend(readUnits + len(record)/unitBytes)
	}
	if err = rec.Decode(record); err == nil {
		err = m.Decode(rec.Message)
	}
	return rec, m, err
}

// enqueue enqueues the message of a group that is over and returns its id. Errors: errGroupEnd, those of the store.
func (t *groupTable) enqueue(c *core, g *group.Group) (ID, error) {
	rec, whole, err := t.message(c, g)
	if err != nil {
		return ID{}, err
	}
	q := c.queues.byName[rec.Queue]
	if q == nil {
		return ID{}, fmt.Errorf("%w: there is no queue %.255q", errGroupEnd, rec.Queue)
	}
	if g.Outer != 0 && !t.Enter(g.Outer, q.no) {
		return ID{}, fmt.Errorf("%w: it is a member of a group that is cancelled", errGroupEnd)
	}
	req := Enqueue{Queue: rec.Queue, Key: rec.Key, Meta: whole.Meta, hash: keytable.HashOf(rec.Key)}
	a := admission{queue: q}
	if req.MemberOf = g.Outer; !q.ordered() {
		a.readyAt = t.readyAt(c, &rec)
		if rec.Priority > 0 {
			req.Priority = new(uint8(rec.Priority - 1))
		}
	}
	if a.expires, err = c.lifetime(q, time.Duration(rec.TTL), a.readyAt); err != nil {
		a.expires = 0 // it would be over before the message is ready: nothing refuses that
	}
	req.ExpiresAt = a.expires
	whole.Headers = append(slices.Clip(whole.Headers),
		Header{Name: []byte("fila-group"), Value: []byte(g.Name)},
		Header{Name: []byte("fila-group-done"), Value: strconv.AppendInt(nil, g.Done, 10)},
		Header{Name: []byte("fila-group-dead"), Value: strconv.AppendInt(nil, g.Dead, 10)})
	req.record = whole.Append(nil)
	m := c.add(c.keyWithHash(q, req.Key, req.hash), &req, &a, nil)
	c.emitMessage(EventEnqueued, m)
	return m.id, nil
}

// readyAt returns when a message of a group that is enqueued now is ready; 0: at once.
func (t *groupTable) readyAt(c *core, rec *storage.GroupMessage) int64 {
	switch {
	case rec.Delay > 0:
		return c.now + rec.Delay
	case rec.At > 0:
		return c.onCalendar(rec.At)
	}
	return 0
}

// cancel cancels a group, its message and its members that are not leased.
func (t *groupTable) cancel(c *core, g *group.Group, reason string) {
	t.Cancel(g, c.now, reason)
	if g.Outer != 0 {
		t.End(g.Outer, 0, false, group.Cancelled)
	}
	t.sweepFor(c, g)
	c.out.sync = true
}

// groupSweep removes members of cancelled groups from a queue, page by page.
type groupSweep struct {
	queue  *queue
	no     uint32
	groups map[uint64]struct{} // of which it removes members; never changed, as pages read it
	more   map[uint64]struct{} // the same of another pass, which follows; nil: none does
	cursor []byte              // where the next page begins; nil: the beginning
}

// sweepFor has the members of a cancelled group removed from their queues.
func (t *groupTable) sweepFor(c *core, g *group.Group) {
	for no := range g.PendingIn() {
		q := c.queues.byNumber[no]
		if q == nil {
			continue // what it had is reclaimed
		}
		s := t.sweeps[no]
		if s == nil {
			s = &groupSweep{queue: q, no: no}
			t.sweeps[no] = s
			t.line = append(t.line, s)
		}
		if s.more == nil {
			s.more = map[uint64]struct{}{}
		}
		s.more[g.Number()] = struct{}{}
	}
}

// sweepNext reads the next page of the first sweep in line, unless one is being read.
func (t *groupTable) sweepNext(c *core) {
	if len(t.line) == 0 || t.page != nil || t.sweepAt > c.now || !c.mayRead() {
		return
	}
	s := t.line[0]
	if c.queues.byNumber[s.no] != s.queue { // purged or deleted
		t.endSweep()
		return
	}
	if s.groups == nil {
		s.groups, s.more = s.more, nil
	}
	t.page = c.readPage(s.queue, "", s.cursor, sweepLook, func(c *core) { t.swept(c, s) })
	t.page.members, t.page.most = s.groups, sweepPage
}

// endSweep ends the first sweep in line.
func (t *groupTable) endSweep() {
	delete(t.sweeps, t.line[0].no)
	t.line[0] = nil
	t.line = t.line[1:]
}

// swept removes the members that a page has found and that are not leased.
func (t *groupTable) swept(c *core, s *groupSweep) {
	p := t.page
	t.page = nil
	switch {
	case c.queues.byNumber[s.no] != s.queue:
		t.endSweep()
		return
	case p.err != nil:
		c.cfg.Log.Error().Err(p.err).Str("queue", s.queue.name).Msg("members of a cancelled group cannot be read, retrying later")
		t.sweepAt = c.now + int64(c.cfg.RetryInterval)
	case c.valid(&p.changeLog):
		c.spend(len(p.found))
		for i := range p.found {
			f := &p.found[i]
			if is := c.locate(&p.changeLog, f); is != ready && is != delayed {
				continue
			} else if m := c.takeOut(f, is); m != nil {
				t.cancelMember(c, m)
			}
		}
		if s.cursor = p.next; s.cursor == nil {
			if s.groups = nil; s.more == nil {
				t.endSweep()
				return
			}
		}
	}
	t.line = append(t.line[1:], s) // the next one has its turn
}

// recover reads the groups that have not come to their end, with their counts, and finds the generations of the
// others.
func (t *groupTable) recover(c *core) error {
	t.ended.Dropped = c.out.batchNo // look-ups from before the recovery are stale
	t.kept = generation.NewUnder(storage.GroupEndsPrefix(), storage.State, c.cfg.GroupsKeep)
	err := c.scan(storage.State, storage.AppendStateKey(nil, storage.StateGroup), func(k, v []byte) error {
		number, _, err := storage.ParseGroupKey(k)
		if err != nil {
			return err
		}
		var head storage.Group
		if err := head.Decode(v); err != nil {
			return fmt.Errorf("group %d: %w", number, err)
		}
		t.Restore(number, head)
		return nil
	})
	if err != nil {
		return err
	}
	err = c.scan(storage.State, storage.AppendStateKey(nil, storage.StateGroupCount), func(k, v []byte) error {
		number, queue, err := storage.ParseGroupKey(k)
		if err != nil {
			return err
		}
		var n storage.GroupCount
		if err := n.Decode(v); err != nil {
			return fmt.Errorf("counts of the group %d: %w", number, err)
		}
		t.RestoreCount(number, queue, n, c.queues.byNumber[queue] != nil)
		return nil
	})
	if err != nil {
		return err
	}
	t.Restored()
	t.Walk(0, t.Len(), func(g *group.Group) {
		if g.IsCancelled() {
			t.sweepFor(c, g)
		}
	})
	return c.ended.Recover(c.store, t.kept)
}

// check verifies the groups (41), and that a group counts at least its members in memory (42).
func (t *groupTable) check(c *core, bad report) {
	t.Check(group.Report(bad))
	type at struct {
		group uint64
		queue uint32
	}
	pending, buried := map[at]int64{}, map[at]int64{}
	for m := range inMemory(c) {
		switch key := (at{m.tied().member, m.key.queue.no}); {
		case key.group == 0 || m.key.purged():
		case m.tied().died:
			buried[key]++
		default:
			pending[key]++
		}
	}
	t.CheckMembers(func(number uint64, queue uint32, has, hasBuried int64) {
		if key := (at{number, queue}); has < pending[key] || hasBuried < buried[key] {
			bad(42, "group %d has %d pending and %d buried members in queue %d, in memory are %d and %d", number, has, hasBuried, queue, pending[key], buried[key])
		}
		delete(pending, at{number, queue})
		delete(buried, at{number, queue})
	})
	for key := range pending {
		if t.Numbered(key.group) != nil {
			bad(42, "group %d has members in queue %d and does not count them", key.group, key.queue)
		}
	}
	if n := len(slices.Collect(maps.Keys(t.sweeps))); n != len(t.line) {
		bad(42, "%d sweeps are found, %d are in line", n, len(t.line))
	}
	size := 0
	for _, m := range t.messages {
		size += len(m.record)
	}
	if size != t.bytes {
		bad(42, "messages of groups have %d bytes, %d are counted", size, t.bytes)
	}
}
