package storage

import "encoding/binary"

// This file is the keys and records of groups, in the family State.

// Group is a group that has not come to its end. Its key is AppendGroupKey.
type Group struct {
	Name        string
	WhenDone    bool // a dead member keeps it waiting
	OpenedAt    int64
	ExpireAt    int64  // 0: never
	SealedAt    int64  // 0: it is open
	CancelledAt int64  // 0: it is not cancelled
	Error       string // why it is cancelled; "": by a command, or it is not
	Outer       uint64 // number of the group of which its message is a member; 0: none
	Queue       string // of its message
}

// Append appends the encoded record.
func (g *Group) Append(dst []byte) []byte { return encode(dst, g) }

// Decode reads a record that Append made. A group without a name is corrupt.
func (g *Group) Decode(b []byte) error {
	return decode(b, g, Group{}, "group", func(g *Group) bool { return g.Name != "" })
}

func (g *Group) fields(c *codec) {
	c.string(1, &g.Name)
	c.bool(2, &g.WhenDone)
	c.int64(3, &g.OpenedAt)
	c.int64(4, &g.ExpireAt)
	c.int64(5, &g.SealedAt)
	c.int64(6, &g.CancelledAt)
	c.string(7, &g.Error)
	c.uint64(8, &g.Outer)
	c.string(9, &g.Queue)
}

// GroupMessage is the message that a group enqueues at its end. Its key is AppendGroupMessageKey.
type GroupMessage struct {
	Queue    string
	Key      string // fairness key
	Priority uint32 // one more than the priority; 0: not given
	Delay    int64  // nanoseconds
	At       int64
	TTL      int64  // nanoseconds; 0: that of the queue
	Message  []byte // a Message
}

// Append appends the encoded record.
func (m *GroupMessage) Append(dst []byte) []byte { return encode(dst, m) }

// Decode reads a record that Append made. A message without a queue is corrupt.
func (m *GroupMessage) Decode(b []byte) error {
	return decode(b, m, GroupMessage{}, "group message", func(m *GroupMessage) bool { return m.Queue != "" })
}

func (m *GroupMessage) fields(c *codec) {
	c.string(1, &m.Queue)
	c.string(2, &m.Key)
	c.uint32(3, &m.Priority)
	c.int64(4, &m.Delay)
	c.int64(5, &m.At)
	c.int64(6, &m.TTL)
	c.bytes(7, &m.Message)
}

// GroupCount is the members that a queue has, or has had, of a group. Its key is AppendGroupCountKey.
type GroupCount struct {
	Pending   int64
	Buried    int64 // dead ones that are in this queue
	Done      int64
	Dead      int64 // those that are in no queue any more
	Cancelled int64
}

// Append appends the encoded record.
func (n *GroupCount) Append(dst []byte) []byte { return encode(dst, n) }

// Decode reads a record that Append made. A negative number is corrupt.
func (n *GroupCount) Decode(b []byte) error {
	return decode(b, n, GroupCount{}, "group count", func(n *GroupCount) bool {
		return min(n.Pending, n.Buried, n.Done, n.Dead, n.Cancelled) >= 0
	})
}

func (n *GroupCount) fields(c *codec) {
	c.int64(1, &n.Pending)
	c.int64(2, &n.Buried)
	c.int64(3, &n.Done)
	c.int64(4, &n.Dead)
	c.int64(5, &n.Cancelled)
}

// GroupEnd is a group that has come to its end. Its key is GroupEndsPrefix, a generation and GroupEndID.
type GroupEnd struct {
	Number          uint64
	Cancelled       bool
	Done, Dead      int64 // members
	CancelledNumber int64 // members
	Message         ID    // zero: it has none
	Error           string
	OpenedAt        int64
	SealedAt        int64 // 0: it was not sealed
	EndedAt         int64
	Queue           string // of its message
}

// Append appends the encoded record.
func (e *GroupEnd) Append(dst []byte) []byte { return encode(dst, e) }

// Decode reads a record that Append made. A group without a number is corrupt.
func (e *GroupEnd) Decode(b []byte) error {
	return decode(b, e, GroupEnd{}, "group end", func(e *GroupEnd) bool {
		return e.Number != 0 && min(e.Done, e.Dead, e.CancelledNumber) >= 0
	})
}

func (e *GroupEnd) fields(c *codec) {
	c.uint64(1, &e.Number)
	c.bool(2, &e.Cancelled)
	c.int64(3, &e.Done)
	c.int64(4, &e.Dead)
	c.int64(5, &e.CancelledNumber)
	c.someID(6, &e.Message)
	c.string(7, &e.Error)
	c.int64(8, &e.OpenedAt)
	c.int64(9, &e.SealedAt)
	c.int64(10, &e.EndedAt)
	c.string(11, &e.Queue)
}

// AppendGroupKey appends the key of a Group.
func AppendGroupKey(dst []byte, group uint64) []byte {
	return binary.BigEndian.AppendUint64(append(AppendStateKey(dst, StateGroup), 0, 8), group)
}

// AppendGroupMessageKey appends the key of a GroupMessage.
func AppendGroupMessageKey(dst []byte, group uint64) []byte {
	return binary.BigEndian.AppendUint64(append(AppendStateKey(dst, StateGroupMessage), 0, 8), group)
}

// AppendGroupCountKey appends the key of a GroupCount: of a group, and the number of a queue; 0: in no queue.
func AppendGroupCountKey(dst []byte, group uint64, queue uint32) []byte {
	dst = binary.BigEndian.AppendUint64(append(AppendStateKey(dst, StateGroupCount), 0, 8), group)
	return binary.BigEndian.AppendUint32(append(dst, 0, 4), queue)
}

// GroupEndsPrefix returns the common prefix of the keys of groups that have come to their end. The generation follows in
// 8 bytes, which is a part of the key, and then GroupEndID.
func GroupEndsPrefix() []byte { return append(AppendStateKey(nil, StateGroupEnd), 0, 8) }

// GroupEndID is the end of the key of a GroupEnd.
func GroupEndID(name string) string { return string(AppendStateKey(nil, name)) }

// AppendGroupEndKey appends the key of a GroupEnd.
func AppendGroupEndKey(dst []byte, generation int64, name string) []byte {
	return append(AppendDuePrefix(append(dst, GroupEndsPrefix()...), generation), GroupEndID(name)...)
}

// ParseGroupKey decodes the key of a Group, its GroupMessage or a GroupCount, or returns ErrCorrupt.
func ParseGroupKey(k []byte) (group uint64, queue uint32, err error) {
	parts, err := ParseStateKey(k)
	if err != nil || len(parts) < 2 || len(parts[1]) != 8 || len(parts) > 3 || len(parts) == 3 && len(parts[2]) != 4 {
		return 0, 0, badKey("group", k)
	}
	if len(parts) == 3 {
		queue = binary.BigEndian.Uint32([]byte(parts[2]))
	}
	return binary.BigEndian.Uint64([]byte(parts[1])), queue, nil
}

// GroupOf returns the number of the group that has not come to its end, of which a record of State is, and its queue; ok
// is false if it is something else.
func GroupOf(key []byte) (kind string, group uint64, queue uint32, ok bool) {
	parts, err := ParseStateKey(key)
	if err != nil || len(parts) == 0 || parts[0] != StateGroup && parts[0] != StateGroupMessage && parts[0] != StateGroupCount {
		return "", 0, 0, false
	}
	group, queue, err = ParseGroupKey(key)
	return parts[0], group, queue, err == nil
}

// badGroupKey reports whether the parts of a key of State are those of a group, and have other lengths.
func badGroupKey(parts []string) bool {
	switch parts[0] {
	case StateGroup, StateGroupMessage, StateGroupEnd:
		return len(parts[1]) != 8
	case StateGroupCount:
		return len(parts[1]) != 8 || len(parts[2]) != 4
	}
	return false
}

// checkGroupMessage verifies a GroupMessage.
func checkGroupMessage(value []byte) error {
	var rec GroupMessage
	if err := rec.Decode(value); err != nil {
		return err
	}
	return new(Message).Decode(rec.Message)
}
