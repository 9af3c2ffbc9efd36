package verify

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/faisca/fila/storage"
)

// Groups. A group that has not come to its end has a message, and its counts are those of the messages that are members of
// it. What counts say of queues that are gone is about to be ended by a broker, and is not looked at. Repair corrects a
// count: members that are not there any more are cancelled. A group without its message is dropped, and what is left of
// a group alone; its members are then members of none.

// memberOf is a group and a queue.
type memberOf struct {
	group uint64
	queue uint32
}

// groupMembers are messages that are members of a group.
type groupMembers struct{ pending, buried int64 }

// countMember counts a message of a queue that exists.
func (v *verifier) countMember(queue uint32, m *storage.Message) {
	if m.MemberOf == 0 {
		return
	}
	if v.members == nil {
		v.members = map[memberOf]groupMembers{}
	}
	at := memberOf{m.MemberOf, queue}
	n := v.members[at]
	if m.Died {
		n.buried++
	} else {
		n.pending++
	}
	v.members[at] = n
}

// checkGroup: what a record of a group needs exists, and a count is right.
func (v *verifier) checkGroup(key, value, needs []byte, group uint64) error {
	if _, err := v.store.Get(storage.State, needs); errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("a record of the group with the number %d, of which another one is missing", group)
	}
	kind, _, queue, _ := storage.GroupOf(key)
	if kind != storage.StateGroupCount || v.queues[queue] == nil {
		return nil
	}
	var n storage.GroupCount
	if err := n.Decode(value); err != nil {
		return err
	}
	at := memberOf{group, queue}
	has := v.members[at]
	if delete(v.members, at); has.pending != n.Pending || has.buried != n.Buried {
		v.reportCount(key, at, n, has)
	}
	return nil
}

// reportUncounted reports members of groups that these do not count at all.
func (v *verifier) reportUncounted() {
	for _, at := range slices.SortedFunc(maps.Keys(v.members), func(a, b memberOf) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.queue, b.queue))
	}) {
		if _, err := v.store.Get(storage.State, storage.AppendGroupKey(nil, at.group)); err == nil { // else it has come to its end
			v.reportCount(storage.AppendGroupCountKey(nil, at.group, at.queue), at, storage.GroupCount{}, v.members[at])
		}
	}
	v.members = nil
}

// reportCount reports a count that is not that of the messages.
func (v *verifier) reportCount(key []byte, at memberOf, n storage.GroupCount, has groupMembers) {
	key = bytes.Clone(key)
	name := v.queues[at.queue].Name
	v.report(Finding{
		Family: storage.State, Key: key,
		What: fmt.Sprintf("the group with the number %d counts %d pending and %d dead members in queue %.80q, which has %d and %d", at.group, n.Pending, n.Buried, name, has.pending, has.buried),
		mend: func(b *storage.Batch) string {
			n.Cancelled += max(n.Pending+n.Buried-has.pending-has.buried, 0)
			n.Pending, n.Buried = has.pending, has.buried
			b.Put(storage.State, key, n.Append(nil))
			return fmt.Sprintf("corrected what the group with the number %d counts in queue %.80q", at.group, name)
		},
	})
}
