package engine

import (
	"slices"

	"github.com/faisca/fila/engine/budget"
	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/internal/keytable"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// This file is the two ways between what a producer said about a message, Meta, and the message
// in memory. There are many messages in memory, so each has only what most of them have: what
// neighbours share is in a throttleSet, and what few have is in ties.

// Meta is what a producer said about a message beside its content.
type Meta = storage.Meta

// give gives a message what was said about it. set is the throttle set of meta; owner says that
// the message is the owner of its unique id.
func (m *message) give(meta *Meta, set *throttleSet, owner bool) {
	m.cost, m.throttles, m.expires = max(meta.Cost, 1), set, meta.ExpiresAt
	t := ties{body: meta.Body, retries: meta.Retries, untilLease: meta.UntilLease, rewritten: meta.Rewritten, member: meta.MemberOf, died: meta.Died}
	if owner {
		t.unique = meta.Unique
	}
	m.tie(t)
}

// meta is the reverse of give. The weight is that of the key, and the unique id that of the owner.
func (m *message) meta() Meta {
	t := m.tied()
	meta := Meta{Cost: m.cost, ExpiresAt: m.expires, Unique: t.unique, Body: t.body, Retries: t.retries, UntilLease: t.untilLease, Rewritten: t.rewritten, MemberOf: t.member, Died: t.died}
	if l := m.throttles; l != nil {
		meta.Throttles, meta.Budgets, meta.Charge = l.Names, l.Budgets, l.Charge
	}
	return meta
}

// ties are what only few messages have. They are never changed, as messages may share them.
type ties struct {
	unique  string            // the unique id of which the message is the owner; "": none
	body    ID                // the body that it holds together with messages of other queues; zero: none
	retries *queueset.Retries // its own; nil: those of its queue
	// firstLeased is when its first lease began, once that is over, where the queue keeps what is done; 0: not known.
	firstLeased int64

	member uint64 // number of the group of which it is a member; 0: none

	died       bool // its group counts it as dead
	untilLease bool // the unique id that the message has or has had is free from its lease on
	rewritten  bool // its record has been put more than once, see Meta.Rewritten
}

// tie replaces the ties of a message.
func (m *message) tie(t ties) {
	if m.ties = nil; t != (ties{}) {
		own := t // t itself stays on the stack where there are none
		m.ties = &own
	}
}

// noteFirstLease notes when the first lease of a message began; 0: not known.
func (m *message) noteFirstLease(at int64) {
	if at != 0 {
		t := m.tied()
		t.firstLeased = at
		m.tie(t)
	}
}

// tied returns the ties of a message, empty ones if it has none.
func (m *message) tied() ties {
	if m.ties == nil {
		return ties{}
	}
	return *m.ties
}

// freed reports whether the message has had a unique id until its lease, and has it no more.
func (m *message) freed() bool { return m.ties != nil && m.ties.untilLease && m.ties.unique == "" }

// throttleSet returns the set of what meta names for a message of a fairness key,
// nil if that is nothing. It returns the key's present set if that is the same, or the one that the
// key had when its last message left: a key without messages is forgotten, and when it comes back
// its messages mostly name what they named before. A set that differs by its charge alone shares
// what has been looked up: the class does not depend on the charge.
func (s *ordering) throttleSet(k *fairKey, meta *Meta) *throttleSet {
	if len(meta.Throttles)+len(meta.Budgets) == 0 {
		return nil
	}
	if !k.throttles.has(meta) {
		k.throttles = s.recentSet(k.queue, k.hash, meta)
	}
	if l := k.throttles; l.Charge != meta.Charge {
		same := *l
		same.Charge = meta.Charge
		k.throttles = &same
	}
	return k.throttles
}

// recentSet returns the set of what meta names that the fairness key with a hash has
// had last, or a new one. Its charge may be another one.
func (s *ordering) recentSet(q *queue, hash keytable.Hash, meta *Meta) *throttleSet {
	slot := &s.recent[(uint64(hash)+uint64(q.no))%recentSets]
	if !(*slot).has(meta) {
		*slot = newThrottleSet(meta)
	}
	return *slot
}

// throttleSet is the throttle set of a message: its throttle keys and the budgets that pay for it, with what has
// been looked up of them. Consecutive messages of a fairness key with the same names and charge share one.
// Names or budgets are not empty.
type throttleSet struct {
	dispatch.Set
	accounts budget.Found // of the budgets
}

// of returns the set for the order of delivery: nil if there is none.
func (l *throttleSet) of() *dispatch.Set {
	if l == nil {
		return nil
	}
	return &l.Set
}

// newThrottleSet returns the set of what meta names, nil if that is nothing.
func newThrottleSet(meta *Meta) *throttleSet {
	if len(meta.Throttles)+len(meta.Budgets) == 0 {
		return nil
	}
	return &throttleSet{Set: dispatch.Set{Names: meta.Throttles, Budgets: meta.Budgets, Charge: meta.Charge}}
}

// has reports whether the set, which may be nil, has the throttle keys and budgets of meta.
func (l *throttleSet) has(meta *Meta) bool {
	return l != nil && slices.Equal(l.Names, meta.Throttles) && slices.Equal(l.Budgets, meta.Budgets)
}

// throttleKeys returns the throttle keys of the message, which the caller must not change.
func (m *message) throttleKeys() []string {
	if m.throttles == nil {
		return nil
	}
	return m.throttles.Names
}
