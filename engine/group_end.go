package engine

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/group"
	"github.com/faisca/fila/engine/internal/keytable"
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
type groupTable struct{ group.Table }

const (
	// A page of a sweep looks at so many messages, and removes so many.
	sweepLook = 4096
	sweepPage = 512
	// groupsAtOnce is how many groups come to their end behind one task.
	groupsAtOnce = turnUnits
)

func (t *groupTable) reset() { t.Reset() }

// next returns when something of a group is due, or a page of a sweep is read.
func (t *groupTable) next(c *core) int64 {
	return min(t.NextAt(), max(t.SweepAt(), c.reads.PausedTo))
}

// expire cancels the groups that have expired, drops what need not be known any more, and reads the next page of a sweep,
// within the budget.
func (t *groupTable) expire(c *core) {
	for c.room() && t.Expire(c.now) {
		c.spend(1)
		c.out.sync = true
	}
	c.spend(t.Drop(c.out.writes(c.now), c.out.committed, max(c.tasks.budget.Left, 0)))
	t.sweepNext(c)
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
func (t *groupTable) ends(c *core, m *message) bool { return m.expired(c.now) || t.cancels(m) }

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

// end finishes a group that is over: its message is enqueued, unless it is cancelled.
func (t *groupTable) end(c *core, g *group.Group) {
	var id ID
	if !g.IsCancelled() {
		m, err := t.enqueue(c, g)
		switch {
		case errors.Is(err, errGroupEnd):
			t.Cancel(g, c.now, err.Error())
		case err != nil:
			c.cfg.Log.Error().Err(err).Str("group", g.Name).Msg("the message of a group cannot be read, retrying later")
			t.Retry(g, c.now+int64(c.cfg.RetryInterval))
			return
		default:
			id = m
		}
	}
	t.Finish(g, id, c.out.writes(c.now))
	c.out.sync = true
}

// errGroupEnd is wrapped by errors that cancel a group which would be done.
var errGroupEnd = errors.New("the message of the group was not enqueued")

// enqueue enqueues the message of a group that is over and returns its id. Errors: errGroupEnd, those of the store.
func (t *groupTable) enqueue(c *core, g *group.Group) (ID, error) {
	rec, read, err := t.Message(g, c.store)
	if read >= 0 {
		c.spend(readUnits + read/unitBytes)
	}
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
	req := Enqueue{Queue: rec.Queue, Key: rec.Key, Meta: rec.Whole.Meta, hash: keytable.HashOf(rec.Key)}
	a := admission{queue: q}
	if req.MemberOf = g.Outer; !q.ordered() {
		a.readyAt = t.readyAt(c, &rec.GroupMessage)
		if rec.Priority > 0 {
			req.Priority = new(uint8(rec.Priority - 1))
		}
	}
	if a.expires, err = c.lifetime(q, time.Duration(rec.TTL), a.readyAt); err != nil {
		a.expires = 0 // it would be over before the message is ready: nothing refuses that
	}
	req.ExpiresAt = a.expires
	req.record = rec.Whole.Append(nil)
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

// sweepNext reads the next page of a sweep, if it is due.
func (t *groupTable) sweepNext(c *core) {
	if t.SweepAt() > c.now || !c.mayRead() {
		return
	}
	s := t.NextPage()
	q := c.queues.byNumber[s.Queue]
	if q == nil { // purged or deleted
		t.SweptAway()
		return
	}
	var p *page
	p = c.readPage(q, "", s.Cursor, sweepLook, func(c *core) { t.swept(c, p) })
	p.Members, p.Most = s.Members, sweepPage
}

// swept removes the members that a page has found and that are not leased.
func (t *groupTable) swept(c *core, p *page) {
	switch {
	case c.queues.byNumber[p.no] == nil:
		t.SweptAway()
	case p.err != nil:
		c.cfg.Log.Error().Err(p.err).Str("queue", p.queue.name).Msg("members of a cancelled group cannot be read, retrying later")
		t.SweepAgain(c.now + int64(c.cfg.RetryInterval))
	case !c.valid(&p.changeLog):
		t.SweepAgain(c.now)
	default:
		c.spend(len(p.found))
		for i := range p.found {
			f := &p.found[i]
			if is := c.locate(&p.changeLog, f); is != ready && is != delayed {
				continue
			} else if m := c.takeOut(f, is); m != nil {
				t.cancelMember(c, m)
			}
		}
		t.Swept(p.Next)
	}
}

// recover reads the groups that have not come to their end, with their counts, and finds the generations of the
// others.
func (t *groupTable) recover(c *core) error {
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
	return t.Recover(c.store, c.cfg.GroupsKeep, c.out.batchNo)
}

// check verifies the groups (41), and that a group counts at least its members in memory (42).
func (t *groupTable) check(c *core, bad report) {
	t.Check(group.Report(bad))
	t.CheckMembers(membersInMemory(c), group.Report(bad))
}

// membersInMemory iterates over the members of groups that are in memory.
func membersInMemory(c *core) iter.Seq[group.Member] {
	return func(yield func(group.Member) bool) {
		for m := range inMemory(c) {
			if of := m.tied().member; of != 0 && !m.key.purged() && !yield(group.Member{Group: of, Queue: m.key.queue.no, Buried: m.tied().died}) {
				return
			}
		}
	}
}
