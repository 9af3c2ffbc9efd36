package scripting

import (
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/faisca/fila/engine"
)

// This file remembers decisions. A script sees nothing but its message and its
// settings, so what it decides follows from what it has asked of them: the same
// answers lead to the same next question, and in the end to the same decision. The
// questions of a run, with their answers, are therefore a path in a tree, and a
// message that gives the same answers need not run the script.
//
// Nothing has to be forgotten when a setting changes, since reading it is one of the
// questions; and what a script does not read, such as the payload's size, does not
// matter. Errors are not remembered: each is made, and counted, anew.

// question is something that a script can ask of a message or of the settings.
type question struct {
	kind questionKind
	name string // of a header or setting
}

type questionKind uint8

const (
	askNothing questionKind = iota
	askHeader
	askHeaders // how many
	askSetting
	askQueue
	askKey
	askWeight
	askSize
)

// answer is what a message answers. Of the fields, a question uses one or two.
type answer struct {
	text   string
	raw    []byte // text that has to be copied before it may be kept
	number int
	is     bool // there is such a header or setting
}

func (q *question) answer(msg *engine.HookMessage, get engine.Settings) (a answer) {
	switch q.kind {
	case askHeader:
		if h := header(msg, q.name); h != nil {
			a.raw, a.is = h.Value, true
		}
	case askSetting:
		if get != nil {
			a.text, a.is = get(q.name)
		}
	case askHeaders:
		a.number = len(msg.Headers)
	case askQueue:
		a.text = msg.Queue
	case askKey:
		a.text = msg.Key
	case askWeight:
		a.number = int(msg.Weight)
	case askSize:
		a.number = msg.PayloadSize
	case askNothing:
	}
	return a
}

const (
	questionsMax = 8   // of a run that is remembered
	pathBytes    = 512 // of questions, answers and the decision that are remembered
)

// trace is what a run has asked so far, each question once.
type trace struct {
	off   bool // nobody wants it, or it cannot be remembered
	n     int
	asked [questionsMax]question
}

func (t *trace) start(wanted bool) {
	clear(t.asked[:t.n]) // names may be parts of long strings
	t.n, t.off = 0, !wanted
}

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

// luck says how often a script's decisions are known. Remembering costs as much as
// running the script: with messages that are hardly ever alike only few are.
type luck int

const (
	luckMost  = 1000
	luckWorst = -16 // hits are so rare that one miss in so many is remembered
	luckHit   = 4   // a hit makes up for so many misses
)

func (l *luck) hit() { *l = min(*l+luckHit, luckMost) }

// miss reports whether what the script is about to decide should be remembered.
func (l *luck) miss() bool {
	*l--
	if *l < luckWorst {
		*l = -1
		return true
	}
	return *l >= 0
}

// node is a point on the way to a decision: the next question, or the end. But for
// newest it never changes.
type node struct {
	ask      question
	decision *engine.EnqueueDecision // where there is no question left
	id       uint64
	// newest is one edge from here: of a setting the newest one, as what it was set
	// to before does not come again, else the first.
	newest atomic.Pointer[edge]
}

// edge leads from a question by its answer to the next.
type edge struct {
	from, to *node
	text     string
	number   int
	is       bool
	used     atomic.Bool // since it was last about to be replaced
}

func (e *edge) leads(from *node, a *answer) bool {
	if e == nil || e.from != from || e.number != a.number || e.is != a.is {
		return false
	}
	if a.raw != nil {
		return e.text == string(a.raw)
	}
	return e.text == a.text
}

// memo has the edges of all scripts, in a table of a fixed size: what is new takes
// the place of what was not used lately. It is read and written without a lock.
type memo struct {
	seed  maphash.Seed
	ids   atomic.Uint64
	slots []atomic.Pointer[edge] // a power of two
}

// newMemo makes room for at least n edges; nil remembers nothing.
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

// places are the two slots in which an edge may be.
func (m *memo) places(from *node, a *answer) [2]*atomic.Pointer[edge] {
	var h uint64
	if a.raw != nil {
		h = maphash.Bytes(m.seed, a.raw)
	} else {
		h = maphash.String(m.seed, a.text)
	}
	h = (h ^ from.id ^ uint64(a.number)<<32) * 0x9e3779b97f4a7c15 //nolint:gosec // any bits do
	i := (h >> 32) & uint64(len(m.slots)-1)                       //nolint:gosec // a length
	return [2]*atomic.Pointer[edge]{&m.slots[i], &m.slots[i^1]}
}

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

// recall returns what the script with this root has decided about a message with the
// same answers; ok is false if that is not known.
func (m *memo) recall(root *node, msg *engine.HookMessage, get engine.Settings) (d engine.EnqueueDecision, ok bool) {
	n := root
	for n != nil {
		if n.decision != nil {
			return *n.decision, true
		}
		a := n.ask.answer(msg, get)
		e := m.find(n, &a)
		if e == nil {
			break
		}
		n = e.to
	}
	return engine.EnqueueDecision{}, false
}

// remember keeps what a run with these questions has decided about a message.
func (m *memo) remember(root *atomic.Pointer[node], asked []question, msg *engine.HookMessage, get engine.Settings, d *engine.EnqueueDecision) {
	size := len(d.Key)
	for _, t := range d.Throttles {
		size += len(t)
	}
	for i := range asked {
		a := asked[i].answer(msg, get)
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
			return // it cannot be; to remember nothing is safe
		}
		a := n.ask.answer(msg, get)
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

// room is where a new edge may be put. One that was used lately has another chance.
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

func (m *memo) edge(from *node, rest []question, a *answer, d *engine.EnqueueDecision) *edge {
	text := strings.Clone(a.text)
	if a.raw != nil {
		text = string(a.raw)
	}
	return &edge{from: from, to: m.node(rest, d), text: text, number: a.number, is: a.is}
}

// node makes the node at which a run is that has these questions still before it.
func (m *memo) node(rest []question, d *engine.EnqueueDecision) *node {
	n := &node{id: m.ids.Add(1)}
	if len(rest) == 0 {
		kept := *d
		n.decision = &kept
		return n
	}
	n.ask = question{rest[0].kind, strings.Clone(rest[0].name)}
	return n
}
