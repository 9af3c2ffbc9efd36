package engine

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
)

// The replicated log in the simulation: Raft without messages. A step of the model is what one
// message would do; what is under way are acknowledgements that a leader has not read, and
// proposals that it has not appended. An entry is committed, or lost, or committed unknown to its
// leader.

// simEntry is an entry of the log. Nodes share entries: equal entries are one.
type simEntry struct {
	term uint64
	data []byte // nil: the log's own, with which a term begins
}

// simNode is a node: its log, and the engine while it leads or believes to.
type simNode struct {
	cluster *simCluster
	id      int

	// What survives a crash. The log has the entries behind base; those up to there are in the
	// snapshot, which is the store.
	term        uint64
	log         []*simEntry
	base        uint64
	baseTerm    uint64
	baseApplied uint64 // what the snapshot's metadata says that the store has
	store       *storage.Memory

	up     bool
	paused bool // stopped by a signal: it does nothing and answers nothing
	side   int  // of a partition

	machine *replica.Machine
	passed  uint64              // index up to which the machine has had the entries
	commit  uint64              // known to be committed
	leads   uint64              // the term that the log leads; 0: none
	match   map[*simNode]uint64 // of the followers, as the leader knows
	acks    []simAck            // not read yet
	results map[*simEntry]error // of the machine, for entries of the term that the log leads

	proposal *simProposal
	leftover [][]byte // entries that an earlier leadership has left in the queue of the log

	session simSession
}

// simAck is a follower's acknowledgement.
type simAck struct {
	from  *simNode
	term  uint64
	index uint64
}

// simProposal is a batch that the engine has proposed.
type simProposal struct {
	first   []byte // the first entry, as it was proposed
	data    [][]byte
	term    uint64      // in which the log has appended it
	entries []*simEntry // nil: it has not
}

func (n *simNode) last() uint64 { return n.base + uint64(len(n.log)) }

// at returns the entry at an index, behind base.
func (n *simNode) at(index uint64) *simEntry { return n.log[index-n.base-1] }

func (n *simNode) termAt(index uint64) uint64 {
	if index == n.base {
		return n.baseTerm
	}
	return n.at(index).term
}

// reaches reports whether a message from one node arrives at another.
func (n *simNode) reaches(o *simNode) bool {
	return n.up && o.up && !n.paused && !o.paused && n.side == o.side
}

// isCurrent reports whether the log of a node would get the vote of another.
func (n *simNode) isCurrent(voter *simNode) bool {
	mine, other := n.termAt(n.last()), voter.termAt(voter.last())
	return mine > other || mine == other && n.last() >= voter.last()
}

// elect makes a node the leader of a new term, if a majority votes for it. Voters may be left out:
// they learn of the term later, an old leader as well.
func (c *simCluster) elect(n *simNode) bool {
	if !n.up || n.paused {
		return false
	}
	voters, term := []*simNode{}, n.term
	for _, i := range c.rng.Perm(len(c.nodes)) {
		o := c.nodes[i]
		if o != n && (!n.reaches(o) || !n.isCurrent(o)) {
			continue
		}
		if o != n && len(voters) >= len(c.nodes)/2+1 && c.rng.IntN(2) == 0 {
			continue
		}
		voters, term = append(voters, o), max(term, o.term)
	}
	if len(voters) <= len(c.nodes)/2 {
		return false
	}
	term++
	for _, o := range voters {
		o.learn(term)
	}
	c.oracle.trace("node %d is elected in term %d", n.id, term)
	n.leads, n.match, n.acks, n.results = term, map[*simNode]uint64{}, nil, map[*simEntry]error{}
	n.append(nil)
	return true
}

// learn takes over a greater term, which ends what the node led.
func (n *simNode) learn(term uint64) {
	if term > n.term {
		n.term = term
		n.stepDown()
	}
}

// stepDown ends the leadership of the log. The engine may learn of it later, or when the node leads
// again.
func (n *simNode) stepDown() {
	if n.leads == 0 {
		return
	}
	n.cluster.oracle.trace("node %d ceases to lead term %d", n.id, n.leads)
	n.leads = 0
}

// append appends to the log of a leader.
func (n *simNode) append(data []byte) *simEntry {
	e := &simEntry{term: n.leads, data: data}
	n.log = append(n.log, e)
	return e
}

// send replicates the log of a leader to a follower, up to some entry, and has the follower
// acknowledge it.
func (n *simNode) send(to *simNode, all bool) {
	if n.leads == 0 || n == to || !n.reaches(to) {
		return
	}
	if to.term > n.leads {
		n.learn(to.term)
		return
	}
	to.learn(n.leads)
	if to.last() < n.base || to.base < n.base && to.termAt(n.base) != n.baseTerm {
		to.install(n)
	}
	from := min(to.last(), n.last())
	for from > max(to.base, n.base) && to.at(from) != n.at(from) {
		from--
	}
	upTo := n.last()
	if !all && upTo > from {
		upTo = from + n.cluster.rng.Uint64N(upTo-from+1)
	}
	if upTo > from { // a message with nothing new removes nothing
		to.log = append(to.log[:from-to.base:from-to.base], n.log[from-n.base:upTo-n.base]...)
		from = upTo
	}
	to.commit = max(to.commit, min(n.commit, from))
	n.acks = append(n.acks, simAck{to, n.leads, from})
}

// install replaces the store of a follower by that of the leader, whose content is newer than the
// index of its snapshot.
func (n *simNode) install(from *simNode) {
	n.cluster.seen.snapshots++
	n.cluster.oracle.trace("node %d gets a snapshot of node %d, of %d and with %d", n.id, from.id, from.base, from.machine.Applied())
	n.store = from.store.Clone()
	if err := n.store.Sync(); err != nil {
		n.cluster.oracle.fail("sync: %v", err)
	}
	n.log, n.base, n.baseTerm, n.baseApplied = nil, from.base, from.baseTerm, from.baseApplied
	n.read()
}

// read begins with what the store and the log have, as at a start.
func (n *simNode) read() {
	m, err := replica.NewMachine(n.store, simClusterID)
	if err == nil {
		err = m.Has(n.baseApplied)
	}
	if err != nil {
		n.cluster.oracle.fail("node %d: %v", n.id, err)
		return
	}
	n.machine, n.passed, n.commit = m, n.base, max(n.commit, n.base)
}

// receive reads the acknowledgements, perhaps those of long ago.
func (n *simNode) receive() {
	for _, a := range n.acks {
		if a.term == n.leads && n.leads != 0 {
			n.match[a.from] = max(n.match[a.from], a.index)
		}
	}
	if n.acks = nil; n.leads == 0 {
		return
	}
	for i := n.last(); i > n.commit && n.termAt(i) == n.leads; i-- {
		have := 1
		for _, index := range n.match {
			if index >= i {
				have++
			}
		}
		if have > len(n.cluster.nodes)/2 {
			n.commit = i
		}
	}
}

// apply passes committed entries to the machine, up to an index.
func (n *simNode) apply(upTo uint64) {
	for n.passed < min(n.commit, upTo) && n.cluster.oracle.err == nil {
		e := n.at(n.passed + 1)
		if e.data != nil {
			err := n.pass(n.passed+1, e)
			if err != nil && !errors.Is(err, storage.ErrDeposed) {
				n.cluster.oracle.fail("node %d: %v", n.id, err)
			}
			if n.leads != 0 {
				n.results[e] = err
			}
			n.cluster.compare(n)
		}
		n.passed++
	}
}

// pass passes an entry to the machine, with the planted faults of machines.
func (n *simNode) pass(index uint64, e *simEntry) error {
	data := e.data
	switch n.cluster.mutant {
	case appliedTwice:
		if parsed, err := replica.ParseEntry(data); err == nil && index <= n.machine.Applied() && parsed.Parts == 1 {
			b, err := storage.ParseBatch(parsed.Bytes)
			if err != nil {
				return err
			}
			return n.store.Commit(b, false)
		}
	case termNotChecked, partsSingly:
		parsed, err := replica.ParseEntry(data)
		if err != nil {
			return err
		}
		if n.cluster.mutant == termNotChecked || parsed.Term == e.term {
			parsed.Term = e.term
			if parsed.Part == 0 {
				parsed.Number = n.machine.LastOf(e.term) + 1
			}
			data = parsed.Append(nil)
		}
	default:
	}
	_, before := n.machine.Snapshot()
	err := n.machine.Apply(index, e.term, data)
	if parsed, _ := replica.ParseEntry(data); before != nil && parsed.Part == 0 {
		n.cluster.seen.unfinished++
	}
	return err
}

// cut makes a snapshot and cuts the log off up to there.
func (n *simNode) cut() {
	applied, err := n.machine.Snapshot()
	if err != nil || n.passed == n.base {
		return
	}
	if n.cluster.mutant != logCutUnsynced {
		if err := n.store.Sync(); err != nil {
			n.cluster.oracle.fail("sync: %v", err)
		}
	}
	n.cluster.oracle.trace("node %d cuts its log off at %d", n.id, n.passed)
	n.baseTerm, n.baseApplied = n.termAt(n.passed), applied
	n.log, n.base = n.log[n.passed-n.base:], n.passed
}

// flow does all that the log of a leader can do.
func (n *simNode) flow() {
	for range 2 { // the second tells the followers what is committed
		for _, o := range n.cluster.nodes {
			n.send(o, true)
		}
		n.receive()
		n.apply(n.commit)
	}
}

// Propose implements replica.Log. It appends in the term that the log leads, as Raft does: that
// may be another one than the engine's. Where a log would block it panics with errUndecided.
func (n *simNode) Propose(term uint64, all iter.Seq[[]byte]) error {
	c, p, entries := n.cluster, n.proposal, slices.Collect(all)
	if p == nil || !bytes.Equal(p.first, entries[0]) {
		p = &simProposal{first: entries[0], data: entries}
		if c.mutant == partsSingly && len(entries) > 1 {
			p.data = halves(entries)
		}
		n.proposal = p
	}
	if p.entries == nil {
		if n.leads == 0 {
			return n.giveUp()
		}
		if c.slow() && c.rng.IntN(3) == 0 {
			panic(errUndecided)
		}
		n.flushLeftover()
		c.seen.divided += min(len(p.data)-1, 1)
		for _, data := range p.data {
			p.entries = append(p.entries, n.append(data))
		}
		if p.term = n.leads; p.term != term {
			c.seen.oldTerm++
			c.oracle.trace("node %d appends a batch of term %d in term %d", n.id, term, p.term)
		}
	}
	switch {
	case n.leads != p.term:
	case c.crashes():
		for range c.rng.IntN(3) {
			n.send(c.nodes[c.rng.IntN(len(c.nodes))], false)
			n.receive()
		}
		panic(errCrash)
	case !c.slow():
		n.flow()
	}
	if n.leads != p.term || c.oracle.err != nil {
		return n.giveUp()
	}
	if err, passed := n.results[p.entries[len(p.entries)-1]]; passed {
		n.proposal = nil
		return err
	}
	panic(errUndecided)
}

// giveUp ends a proposal that the log does not lead any more. What was appended may be committed
// later, and what was not may stay in the queue of the log.
func (n *simNode) giveUp() error {
	if p := n.proposal; p.entries == nil && n.cluster.rng.IntN(2) == 0 {
		n.leftover = append(n.leftover, p.data...)
	}
	n.proposal = nil
	return storage.ErrDeposed
}

// flushLeftover appends what an earlier leadership has left in the queue of the log.
func (n *simNode) flushLeftover() {
	n.cluster.seen.oldTerm += len(n.leftover)
	for _, data := range n.leftover {
		n.cluster.oracle.trace("node %d appends a batch of an earlier leadership", n.id)
		n.append(data)
	}
	n.leftover = nil
}

// errUndecided is what Propose panics with where a log would block.
var errUndecided = errors.New("the log has not decided")

// halves makes two batches of one that has several parts, for a mutant.
func halves(entries [][]byte) [][]byte {
	var rep []byte
	var e replica.Entry
	for _, data := range entries {
		e, _ = replica.ParseEntry(data)
		rep = append(rep, e.Bytes...)
	}
	whole, err := storage.ParseBatch(rep)
	if err != nil {
		panic(err)
	}
	var first, second storage.Batch
	at := 0
	_ = whole.Each(func(r storage.Record) error {
		b := &second
		if at++; at <= whole.Len()/2 {
			b = &first
		}
		switch r.Op {
		case storage.OpPut:
			b.Put(r.Family, r.Key, r.Value)
		case storage.OpDelete:
			b.Delete(r.Family, r.Key)
		case storage.OpSingleDelete:
			b.SingleDelete(r.Family, r.Key)
		case storage.OpDeleteRange:
			b.DeleteRange(r.Family, r.Key, r.Value)
		}
		return nil
	})
	var out [][]byte
	for _, b := range []*storage.Batch{&first, &second} {
		if b.Len() > 0 {
			half := replica.Entry{Term: e.Term, Number: e.Number, Parts: 1, Bytes: b.Bytes()}
			out = append(out, half.Append(nil))
		}
	}
	return out
}

// Confirm is Config.Confirm of the engine of a term.
func (n *simNode) Confirm(term uint64) error {
	switch n.cluster.mutant {
	case toldUnconfirmed:
		return nil
	case confirmedBefore:
		if n.session.heard {
			return nil
		}
	default:
	}
	votes := 0
	for _, o := range n.cluster.nodes {
		if o == n || n.reaches(o) {
			n.learn(o.term)
			if o.term == term {
				votes++
			}
		}
	}
	switch {
	case n.leads != term:
		return storage.ErrDeposed
	case votes <= len(n.cluster.nodes)/2:
		return ErrWouldBlock
	default:
		return nil
	}
}

// heardOf reports whether a majority is in the term that the node leads, now.
func (n *simNode) heardOf() bool {
	votes := 0
	for _, o := range n.cluster.nodes {
		if (o == n || n.reaches(o)) && o.term == n.leads {
			votes++
		}
	}
	return n.leads != 0 && votes > len(n.cluster.nodes)/2
}

// compare compares the stores of nodes that have applied the same entries. Each eighth entry is
// looked at.
func (c *simCluster) compare(n *simNode) {
	if at := n.machine.Applied(); at%8 == 0 && at > 0 {
		c.compareNow(n, at)
	}
}

func (c *simCluster) compareNow(n *simNode, at uint64) {
	sum := digest(n.store)
	if was, known := c.digests[at]; known && was != sum {
		c.oracle.fail("two nodes differ at entry %d, one of them is %d", at, n.id)
	}
	c.digests[at] = sum
}

// digest is a hash of everything in a store.
func digest(store *storage.Memory) uint64 {
	h := fnv.New64a()
	for _, f := range storage.Families() {
		it := store.Scan(f, nil, nil)
		for ok := it.Seek(nil); ok; ok = it.Next() {
			_, _ = fmt.Fprintf(h, "%d %d %d ", f, len(it.Key()), len(it.Value()))
			_, _ = h.Write(it.Key())
			_, _ = h.Write(it.Value())
		}
		it.Close()
	}
	return h.Sum64()
}
