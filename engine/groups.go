package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/engine/group"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/storage"
)

// Groups: messages that are done together. This file is the commands about groups; package group has their states and
// counts, and group_end.go what happens when members end. Each message in memory and each record has the number of the
// group that it is a member of (ties.member).
//
// Groups that have not come to their end are in memory, without their messages. The others are on disk only, in
// generations that are forgotten Config.GroupsKeep after the end, and are looked up off the loop by name, as ids of
// movements are (package recent).

// OpenGroup is a request to open a group. The caller fills the exported fields and calls Engine.PrepareGroup. It can be
// applied once.
type OpenGroup struct {
	Name     string
	Message  Enqueue       // that is enqueued at the end of the group, without DEDUP and UNIQUE
	WhenDone bool          // a dead member keeps the group waiting
	Expire   time.Duration // until it is cancelled; 0: never

	look   *groupLook
	record []byte // a storage.GroupMessage
}

// groupLook is the look-up of a group that has come to its end.
type groupLook = recent.Look[string, storage.GroupEnd]

// PrepareGroup validates a request, runs the hook of the queue of its message and encodes that. It runs on the goroutine
// of the connection. Errors: those of Prepare.
func (e *Engine) PrepareGroup(req *OpenGroup) error {
	return req.prepare(&e.cfg.Limits, e.Snapshot(), wallNanos)
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
	if end, err := c.groups.known(tx, req.Name, &req.look); err != nil || end != nil {
		return false, err
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
		outer, err := t.joinable(tx, m.Group, &m.groupLook)
		if err != nil {
			return false, err
		}
		head.Outer = outer.Number()
	}
	if req.Expire > 0 {
		head.ExpireAt = c.now + int64(req.Expire)
	}
	g := t.Make(head, c.fenceBase())
	c.out.batch.Put(storage.State, storage.AppendGroupMessageKey(nil, g.Number()), req.record)
	c.out.sync = true
	t.hold(g.Number(), req.record, c.out.batchNo)
	t.opened++
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

// known returns the group of a name that has come to its end and is known; nil if there is none. There must be none
// of that name in memory. It returns ErrWouldBlock while the name is looked up.
func (t *groupTable) known(tx *Tx, name string, look **groupLook) (*storage.GroupEnd, error) {
	c := tx.core
	if len(t.kept.List()) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	end, err := t.ended.Find(name, *look)
	switch {
	case errors.Is(err, recent.ErrStale) && tx.atomic:
		return nil, errWaits
	case errors.Is(err, recent.ErrStale):
		return nil, tx.awaitRead(t.look(name, look, c.out.batchNo))
	case err != nil:
		return nil, fmt.Errorf("look group up: %w", err)
	case end.Number == 0 || end.EndedAt+int64(c.cfg.GroupsKeep) <= c.now:
		return nil, nil //nolint:nilnil // there is none
	}
	return &end, nil
}

// look returns the read that looks up a group by name, for awaitRead.
func (t *groupTable) look(name string, look **groupLook, batch uint64) func(store Store) (give func()) {
	kept := t.kept
	return func(store Store) func() {
		l := new(recent.Begin[string, storage.GroupEnd](name, batch))
		b, err := kept.Find(store, storage.GroupEndID(name))
		if l.Err = err; b != nil && err == nil {
			l.Err = l.Found.Decode(b)
		}
		return func() { *look = l }
	}
}

// preflight waits, in a transaction, for a current look-up of a group that is not in memory.
func (t *groupTable) preflight(tx *Tx, name string, look **groupLook) error {
	if t.Get(name) != nil || len(t.kept.List()) == 0 || !t.ended.Stale(*look) {
		return nil
	}
	return tx.awaitRead(t.look(name, look, tx.core.out.batchNo))
}

// joinable returns the group of a name if it takes members. Errors: ErrNoGroup, ErrSealed, ErrWouldBlock while the name is
// looked up.
func (t *groupTable) joinable(tx *Tx, name string, look **groupLook) (*group.Group, error) {
	if g := t.Get(name); g != nil {
		if !g.Open() {
			return nil, sealedGroup(name)
		}
		return g, nil
	}
	switch end, err := t.known(tx, name, look); {
	case err != nil:
		return nil, err
	case end != nil:
		return nil, sealedGroup(name)
	}
	return nil, noGroup(name)
}

func noGroup(name string) error {
	return fmt.Errorf("%w %.255q; open it with FILA.GROUP OPEN", ErrNoGroup, name)
}

func sealedGroup(name string) error {
	return fmt.Errorf("%w: group %.255q takes no more members", ErrSealed, name)
}

// GroupCall names a group, for one call.
type GroupCall struct {
	Name string

	look *groupLook
}

// Preflight looks up, in a transaction, what the calls about a group need.
func (req *GroupCall) Preflight(tx *Tx) error {
	return tx.core.groups.preflight(tx, req.Name, &req.look)
}

// SealGroup has a group take no more members and returns how many are pending. One that is sealed already stays as it is.
// Errors: ErrMisconf, ErrNoGroup, ErrWouldBlock while the name is looked up.
func (tx *Tx) SealGroup(req *GroupCall) (pending int64, err error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return 0, err
	}
	g := c.groups.Get(req.Name)
	if g == nil {
		end, err := c.groups.known(tx, req.Name, &req.look)
		if err == nil && end == nil {
			err = noGroup(req.Name)
		}
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
	if err := c.writable(); err != nil {
		return false, err
	}
	g := c.groups.Get(req.Name)
	if g == nil {
		end, err := c.groups.known(tx, req.Name, &req.look)
		if err == nil && end == nil {
			err = noGroup(req.Name)
		}
		return false, err
	}
	if g.IsCancelled() {
		return false, nil
	}
	c.groups.cancel(c, g, "")
	return true, nil
}

// The states of a group.
const (
	GroupOpen      = "open"
	GroupSealed    = "sealed"
	GroupDone      = "done"
	GroupCancelled = "cancelled"
)

// GroupInfo describes a group.
type GroupInfo struct {
	Name, State string
	group.Counts
	Message  ID     // that was enqueued at its end; zero: none was
	Error    string // why it is cancelled; "": by a command, or it is not
	OpenedAt time.Time
	SealedAt time.Time // zero: it was not
	EndedAt  time.Time // zero: it has not
	Queue    string    // of its message
}

// Group describes a group; ok is false if none of that name is known. ErrWouldBlock while the name is looked up.
func (tx *Tx) Group(req *GroupCall) (info GroupInfo, ok bool, err error) {
	t := &tx.core.groups
	if g := t.Get(req.Name); g != nil {
		return groupInfo(g), true, nil
	}
	end, err := t.known(tx, req.Name, &req.look)
	if err != nil || end == nil {
		return GroupInfo{}, false, err
	}
	return endedInfo(req.Name, end), true, nil
}

func groupInfo(g *group.Group) GroupInfo {
	i := GroupInfo{Name: g.Name, State: GroupOpen, Counts: g.Counts, Error: g.Error, OpenedAt: unix(g.OpenedAt), SealedAt: unixOrZero(g.SealedAt), Queue: g.Queue}
	switch {
	case g.IsCancelled():
		i.State, i.EndedAt = GroupCancelled, unix(g.CancelledAt)
	case g.SealedAt != 0:
		i.State = GroupSealed
	}
	return i
}

func endedInfo(name string, e *storage.GroupEnd) GroupInfo {
	i := GroupInfo{
		Name: name, State: GroupDone, Counts: group.Counts{Done: e.Done, Dead: e.Dead, Cancelled: e.CancelledNumber}, Message: e.Message, Error: e.Error,
		OpenedAt: unix(e.OpenedAt), SealedAt: unixOrZero(e.SealedAt), EndedAt: unix(e.EndedAt), Queue: e.Queue,
	}
	if e.Cancelled {
		i.State = GroupCancelled
	}
	return i
}

// unixOrZero is unix, and the zero time for 0.
func unixOrZero(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return unix(nanos)
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
			list = append(list, groupInfo(g))
		}
	})
	return next, list, nil
}

// groupsPerUnit is the number of groups that a unit of work pays for when they are listed.
const groupsPerUnit = 8

// GroupFigures are counts of groups.
type GroupFigures struct {
	Unfinished int // those that have not come to their end
	// Since the start of the broker:
	Opened, Done, Cancelled uint64
}

// GroupFigures returns counts of groups.
func (tx *Tx) GroupFigures() GroupFigures {
	t := &tx.core.groups
	return GroupFigures{Unfinished: t.Len(), Opened: t.opened, Done: t.done, Cancelled: t.cancelled}
}
