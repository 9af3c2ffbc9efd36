package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/engine/group"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/storage"
)

// Groups: messages that are done together. This file is the commands about groups; package group has their states and
// counts, and group_end.go what happens when members end. Each message in memory and each record has the number of the
// group that it is a member of (ties.member).

// OpenGroup is a request to open a group. The caller fills the exported fields and calls Preparer.PrepareGroup. It can be
// applied once.
type OpenGroup struct {
	Name     string
	Message  Enqueue       // that is enqueued at the end of the group, without DEDUP and UNIQUE
	WhenDone bool          // a dead member keeps the group waiting
	Expire   time.Duration // until it is cancelled; 0: never

	look   *group.Lookup
	record []byte // a storage.GroupMessage
}

// PrepareGroup validates a request, runs the hook of the queue of its message and encodes that. It runs on the goroutine
// of the connection. Errors: those of Prepare.
func (p *Preparer) PrepareGroup(req *OpenGroup) error {
	return req.prepare(&p.cfg.Limits, p.Snapshot(), p.wall)
}

// prepare is PrepareGroup against a snapshot.
func (req *OpenGroup) prepare(l *Limits, s *Snapshot, now func() int64) error {
	m := &req.Message
	if err := l.CheckGroupName(req.Name); err != nil {
		return err
	}
	if req.Expire < 0 || req.Expire > durationMax {
		return fmt.Errorf("%w: EXPIRE must be from 1 to %d ms", ErrInvalid, durationMax.Milliseconds())
	}
	if m.Key == "" {
		m.Key = DefaultKey
	}
	if err := checkMessage(m, l); err != nil {
		return err
	}
	m.complete(s, now)
	whole := m.settings()
	whole.Payload, whole.Headers = m.Payload, m.Headers
	rec := storage.GroupMessage{Queue: m.Queue, Key: m.Key, Delay: int64(m.Delay), At: m.At, TTL: int64(m.TTL), Message: whole.Append(nil)}
	if d := m.hookDelay; d != nil {
		rec.Delay, rec.At = int64(*d), 0
	}
	p := m.Priority
	if m.hookPriority != nil {
		p = m.hookPriority
	}
	if p != nil {
		rec.Priority = 1 + uint32(*p)
	}
	req.record = rec.Append(nil)
	m.Payload, m.Headers = nil, nil
	return nil
}

// checkGroup validates the group that a request names.
func checkGroup(req *Enqueue, l *Limits) error {
	switch {
	case req.Group == "":
		return nil
	case req.Replace:
		return fmt.Errorf("%w: GROUP does not go with REPLACE", ErrInvalid)
	}
	return l.CheckGroupName(req.Group)
}

// OpenGroup opens a group and reports whether it is new: one of that name that is open, sealed, or has come to its end and
// is still known stays as it is. It is durable when the reply leaves.
//
// Errors: ErrMisconf; ErrTooBig for one group too many; ErrNoQueue for the queue of the message, ErrNoBudget for a budget
// of it, ErrInvalid for what that queue cannot do with it; ErrNoGroup or ErrSealed for the group that the message names.
// ErrWouldBlock while the name is looked up.
func (tx *Tx) OpenGroup(req *OpenGroup) (bool, error) {
	c := tx.core
	t, m := &c.groups, &req.Message
	if err := c.writableForNew(); err != nil {
		return false, err
	}
	if t.Get(req.Name) != nil {
		return false, nil
	}
	if end, err := t.Ended(req.Name, req.look, c.now); err != nil || end != nil {
		return false, t.refused(tx, req.Name, &req.look, err)
	}
	if most := c.cfg.Limits.Groups; t.Len() >= most {
		return false, fmt.Errorf("%w: the limit is %s that have not ended, set limits.groups to allow more", ErrTooBig, errtext.Amount(most, "group"))
	}
	q, err := c.queueNamed(m.Queue)
	if err != nil {
		return false, err
	}
	if err := q.checkOrder(m); err != nil {
		return false, err
	}
	if err := c.times(&admission{queue: q}, m); err != nil {
		return false, err
	}
	if err := c.checkPaid(q, m, false); err != nil {
		return false, err
	}
	head := storage.Group{Name: req.Name, WhenDone: req.WhenDone, OpenedAt: c.now, Queue: q.name}
	if m.Group != "" {
		outer, err := t.joinable(tx, m)
		if err != nil {
			return false, err
		}
		head.Outer = outer.Number()
	}
	if req.Expire > 0 {
		head.ExpireAt = c.now + int64(req.Expire)
	}
	t.Open(head, c.fenceBase(), req.record, c.out.writes(c.now))
	c.out.sync = true
	req.record = nil
	return true, nil
}

// Preflight looks up, in a transaction, what Tx.OpenGroup needs.
func (req *OpenGroup) Preflight(tx *Tx) error {
	t := &tx.core.groups
	if err := t.preflight(tx, req.Name, &req.look); err != nil || req.Message.Group == "" {
		return err
	}
	return t.preflight(tx, req.Message.Group, &req.Message.groupLook)
}

// preflight waits, in a transaction, for a current look-up of a group that is not in memory.
func (t *groupTable) preflight(tx *Tx, name string, look **group.Lookup) error {
	if !t.Stale(name, *look) {
		return nil
	}
	return t.lookUp(tx, name, look)
}

// lookUp parks the task until a name is looked up.
func (t *groupTable) lookUp(tx *Tx, name string, look **group.Lookup) error {
	read := t.Lookup(name, tx.core.out.batchNo)
	return tx.awaitRead(func(store Store) func() {
		l := read(store)
		return func() { *look = l }
	})
}

// refused is the error of a call about the group of a name, for one of package group. It may park the task.
func (t *groupTable) refused(tx *Tx, name string, look **group.Lookup, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, group.ErrStale) && tx.atomic:
		return errWaits
	case errors.Is(err, group.ErrStale):
		return t.lookUp(tx, name, look)
	case errors.Is(err, group.ErrNone):
		return fmt.Errorf("%w %.255q; open it with FILA.GROUP OPEN", ErrNoGroup, name)
	case errors.Is(err, group.ErrSealed):
		return fmt.Errorf("%w: group %.255q takes no more members", ErrSealed, name)
	}
	return fmt.Errorf("look group up: %w", err)
}

// joinable returns the group that a request names if it takes members. Errors: ErrNoGroup, ErrSealed, ErrWouldBlock while
// the name is looked up.
func (t *groupTable) joinable(tx *Tx, req *Enqueue) (*group.Group, error) {
	g, err := t.Joinable(req.Group, req.groupLook, tx.core.now)
	return g, t.refused(tx, req.Group, &req.groupLook, err)
}

// GroupCall names a group, for one call.
type GroupCall struct {
	Name string

	look *group.Lookup
}

// Preflight looks up, in a transaction, what the calls about a group need.
func (req *GroupCall) Preflight(tx *Tx) error {
	return tx.core.groups.preflight(tx, req.Name, &req.look)
}

// toChange returns the group of a name for a change; nil without an error if it has come to its end.
func (t *groupTable) toChange(tx *Tx, req *GroupCall) (*group.Group, error) {
	if err := tx.core.writable(); err != nil {
		return nil, err
	}
	if g := t.Get(req.Name); g != nil {
		return g, nil
	}
	end, err := t.Ended(req.Name, req.look, tx.core.now)
	if err == nil && end == nil {
		err = group.ErrNone
	}
	return nil, t.refused(tx, req.Name, &req.look, err)
}

// SealGroup has a group take no more members and returns how many are pending. One that is sealed already stays as it is.
// Errors: ErrMisconf, ErrNoGroup, ErrWouldBlock while the name is looked up.
func (tx *Tx) SealGroup(req *GroupCall) (pending int64, err error) {
	c := tx.core
	g, err := c.groups.toChange(tx, req)
	if g == nil {
		return 0, err
	}
	if g.Open() {
		c.groups.Seal(g, c.now)
		c.out.sync = true
	}
	return g.Pending, nil
}

// CancelGroup cancels a group and reports whether it had not come to its end. From then on no member is delivered: those
// that are not leased are removed, in slices, and leases end as they would, but a failure is not retried. The message of
// the group is not enqueued. Errors: ErrMisconf, ErrNoGroup, ErrWouldBlock while the name is looked up.
func (tx *Tx) CancelGroup(req *GroupCall) (bool, error) {
	c := tx.core
	g, err := c.groups.toChange(tx, req)
	if g == nil || g.IsCancelled() {
		return false, err
	}
	c.groups.Cancel(g, c.now, "")
	c.out.sync = true
	return true, nil
}

// GroupInfo describes a group.
type GroupInfo = group.Info

// Group describes a group; ok is false if none of that name is known. ErrWouldBlock while the name is looked up.
func (tx *Tx) Group(req *GroupCall) (info GroupInfo, ok bool, err error) {
	t := &tx.core.groups
	if g := t.Get(req.Name); g != nil {
		return g.Info(), true, nil
	}
	end, err := t.Ended(req.Name, req.look, tx.core.now)
	if err != nil || end == nil {
		return GroupInfo{}, false, t.refused(tx, req.Name, &req.look, err)
	}
	return group.InfoOf(req.Name, end), true, nil
}

// Groups returns a page of the groups that have not come to their end and whose names match, in the order in which they
// were opened, and the cursor of the next one, 0 at the end. A group that exists throughout a listing is listed exactly
// once.
func (tx *Tx) Groups(cursor uint64, count int, match func(name string) bool) (next uint64, list []GroupInfo, err error) {
	if err := tx.afford(1 + count/groupsPerUnit); err != nil {
		return 0, nil, err
	}
	next = tx.core.groups.Walk(cursor, count, func(g *group.Group) {
		if match(g.Name) {
			list = append(list, g.Info())
		}
	})
	return next, list, nil
}

// groupsPerUnit is the number of groups that a unit of work pays for when they are listed.
const groupsPerUnit = 8
