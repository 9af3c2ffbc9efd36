package scripting

import (
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/faisca/fila/internal/hook"
)

// This file caches decisions. A script sees only its message and its settings, so its
// decision follows from the answers to what it queries of them: equal answers lead to the
// same next query and finally to the same decision. The queries of a run with their
// answers are a path in a tree; a message with the same answers along a path needs no
// run.
//
// For a script that reads the header tier and, for one of its values, the setting gold:
//
//	root: header tier? ──"free"──▶ decision: weight 1
//	                   ──"gold"──▶ setting gold? ──"3"──▶ decision: weight 3
//
// Nodes belong to the hook that made them and are reached from its root only. Edges are in one
// table of fixed size for all hooks, keyed by node and answer, so the memory of the memo is
// bounded and hooks that are called often take it from those that are not. An edge leads from
// a node, by identity: an edge that was replaced makes its subtree unreachable, and the table
// drops the edges in it like any others that are no longer used.
//
// Nothing has to be invalidated when a setting changes, because reading the setting is
// one of the queries. Values that a script does not read, such as the payload size, do
// not matter. Errors are not cached, nor is the decision of a run that has read a signal
// or a budget: the next run would hardly find the same sum.

// question is one query of a script to its message or settings.
type question struct {
	kind questionKind
	name string // name of the header, setting or attribute
}

type questionKind uint8

const (
	askNothing questionKind = iota
	askHeader
	askHeaders // number of headers
	askSetting
	askQueue
	askKey
	askSize
	askAttribute // of the message, see attributeAnswer
)

// answer is the value of a query. A query uses one or two of the fields.
type answer struct {
	text   string
	raw    []byte // text in a buffer that must be copied to be kept
	number int64
	is     bool // the header, setting or attribute exists
}

// answer returns the value of the query for a message and settings, zero if it has none.
func (q *question) answer(msg *hook.Message, view hook.View) (a answer) {
	switch q.kind {
	case askHeader:
		if h := header(msg, q.name); h != nil {
			a.raw, a.is = h.Value, true
		}
	case askSetting:
		if view != nil {
			a.text, a.is = view.Get(q.name)
		}
	case askHeaders:
		a.number = int64(len(msg.Headers))
	case askQueue:
		a.text = msg.Queue
	case askKey:
		a.text = msg.Key
	case askSize:
		a.number = int64(msg.PayloadSize)
	case askAttribute:
		a, _ = attributeAnswer(&msg.Meta, q.name)
	case askNothing:
	}
	return a
}

const (
	questionsMax = 8   // queries of a run that can be cached
	pathBytes    = 512 // bytes of queries, answers and decision that can be cached
)

// trace records the distinct queries of a run, in order.
type trace struct {
	off   bool // not recording, or the run cannot be cached
	n     int
	asked [questionsMax]question
}

// start begins a run, whose queries are recorded if they are wanted.
func (t *trace) start(wanted bool) {
	clear(t.asked[:t.n]) // names may keep long strings alive
	t.n, t.off = 0, !wanted
}

// ask records a query unless the run has made it before: the answer is the same. A run with
// more than questionsMax different ones cannot be cached.
func (t *trace) ask(kind questionKind, name string) {
	if t.off {
		return
	}
	q := question{kind, name}
	for i := range t.n {
		if t.asked[i] == q {
			return
		}
	}
	if t.n == len(t.asked) {
		t.off = true
		return
	}
	t.asked[t.n] = q
	t.n++
}

// hitScore tracks how often a script's decisions are found in the memo. Storing a
// decision costs as much as running the script, so with few hits only a sample is stored.
// A hit adds hitScoreGain, a miss subtracts 1; below 0 only every 16th miss is stored.
type hitScore int

const (
	hitScoreMax  = 1000
	hitScoreMin  = -16 // below it one decision is stored, and the score restarts at -1
	hitScoreGain = 4   // misses that one hit outweighs
)

// hit counts a decision that was found.
func (l *hitScore) hit() { *l = min(*l+hitScoreGain, hitScoreMax) }

// miss counts a miss and reports whether the decision should be stored.
func (l *hitScore) miss() bool {
	*l--
	if *l < hitScoreMin {
		*l = -1
		return true
	}
	return *l >= 0
}

// node is a node of the decision tree: the next query, or a decision. Only newest changes
// after creation.
type node struct {
	ask      question
	decision *hook.EnqueueDecision // nil: not a leaf
	id       uint64
	// newest is one edge from here: for a setting the newest one, because old values
	// rarely return, otherwise the first.
	newest atomic.Pointer[edge]
}

// edge leads from a query by its answer to the next node.
type edge struct {
	from, to *node
	text     string
	number   int64
	is       bool
	used     atomic.Bool // used since it was last considered for replacement
}

// leads reports whether the edge begins at a node and has this answer. e may be nil.
func (e *edge) leads(from *node, a *answer) bool {
	if e == nil || e.from != from || e.number != a.number || e.is != a.is {
		return false
	}
	if a.raw != nil {
		return e.text == string(a.raw)
	}
	return e.text == a.text
}

// memo holds the edges of all scripts in a table of fixed size, with two possible slots
// for each edge; new edges replace those not used recently. It is read and written
// without locks.
type memo struct {
	seed  maphash.Seed
	ids   atomic.Uint64
	slots []atomic.Pointer[edge] // a power of two
}

// newMemo returns a memo for at least n edges, or nil, which disables caching.
func newMemo(n int) *memo {
	if n <= 0 {
		return nil
	}
	size := 2
	for size < n {
		size *= 2
	}
	return &memo{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[edge], size)}
}

// places returns the two slots of an edge.
func (m *memo) places(from *node, a *answer) [2]*atomic.Pointer[edge] {
	var h uint64
	if a.raw != nil {
		h = maphash.Bytes(m.seed, a.raw)
	} else {
		h = maphash.String(m.seed, a.text)
	}
	h = (h ^ from.id ^ uint64(a.number)<<32) * 0x9e3779b97f4a7c15
	i := (h >> 32) & uint64(len(m.slots)-1)
	return [2]*atomic.Pointer[edge]{&m.slots[i], &m.slots[i^1]}
}

// find returns the edge for an answer, or nil.
func (m *memo) find(from *node, a *answer) *edge {
	if e := from.newest.Load(); e.leads(from, a) {
		return e
	}
	if from.ask.kind == askSetting {
		return nil
	}
	for _, p := range m.places(from, a) {
		if e := p.Load(); e.leads(from, a) {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e
		}
	}
	return nil
}

// recall looks up the decision for a message; ok is false if it is not cached.
func (m *memo) recall(root *node, msg *hook.Message, view hook.View) (d hook.EnqueueDecision, ok bool) {
	n := root
	for n != nil {
		if n.decision != nil {
			return *n.decision, true
		}
		a := n.ask.answer(msg, view)
		e := m.find(n, &a)
		if e == nil {
			break
		}
		n = e.to
	}
	return hook.EnqueueDecision{}, false
}

// remember stores the decision of a run with these queries, unless it exceeds pathBytes
// or recently used edges occupy its slots.
func (m *memo) remember(root *atomic.Pointer[node], asked []question, msg *hook.Message, view hook.View, d *hook.EnqueueDecision) {
	size := len(d.Key)
	for _, names := range [][]string{d.Throttles, d.Budgets} {
		for _, name := range names {
			size += len(name)
		}
	}
	for i := range asked {
		a := asked[i].answer(msg, view)
		size += len(asked[i].name) + len(a.raw) + len(a.text)
	}
	if size > pathBytes {
		return
	}
	n := root.Load()
	if n == nil {
		root.CompareAndSwap(nil, m.node(asked, d))
		n = root.Load()
	}
	for i := range asked {
		if n.ask != asked[i] {
			return // impossible for a deterministic script; storing nothing is safe
		}
		a := n.ask.answer(msg, view)
		if e := m.find(n, &a); e != nil {
			n = e.to
			continue
		}
		place := m.room(n, &a)
		if place == nil {
			return
		}
		e := m.edge(n, asked[i+1:], &a, d)
		place.Store(e)
		n = e.to
	}
}

// room returns a slot for a new edge, or nil. Recently used edges get a second chance.
func (m *memo) room(n *node, a *answer) *atomic.Pointer[edge] {
	if n.ask.kind == askSetting || n.newest.Load() == nil {
		return &n.newest
	}
	places := m.places(n, a)
	for _, p := range places {
		if e := p.Load(); e == nil || !e.used.Load() {
			return p
		}
	}
	for _, p := range places {
		if e := p.Load(); e != nil {
			e.used.Store(false)
		}
	}
	return nil
}

// edge creates the edge of an answer, with the nodes of the remaining queries behind it. It
// copies what would keep a message or the buffer of a connection alive.
func (m *memo) edge(from *node, rest []question, a *answer, d *hook.EnqueueDecision) *edge {
	text := strings.Clone(a.text)
	if a.raw != nil {
		text = string(a.raw)
	}
	return &edge{from: from, to: m.node(rest, d), text: text, number: a.number, is: a.is}
}

// node creates the node at which a run has these queries left.
func (m *memo) node(rest []question, d *hook.EnqueueDecision) *node {
	n := &node{id: m.ids.Add(1)}
	if len(rest) == 0 {
		kept := *d
		n.decision = &kept
		return n
	}
	n.ask = question{rest[0].kind, strings.Clone(rest[0].name)}
	return n
}
