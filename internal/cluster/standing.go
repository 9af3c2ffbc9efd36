package cluster

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/storage"
)

// standing is how far a node has come. It never goes back on one disk: each start has a greater number, and the
// term and the settled entries are on the disk before any other node is told of them. So a node that begins
// with less than another one knows of it has an older copy of its disk. It has forgotten votes and entries
// that others count on, and would help to elect a leader that lacks them.
//
// Each node keeps what the others have told (Status, in roster), a new process at once and the rest at
// intervals durably. It is compared, whichever node connects, before Raft uses a connection:
//
//	the older one connects    its greeting has the standing with which it began; it is refused
//	it is connected to        the greeting has what is known of it; it refuses, and ends
//	it asks for a Status      the answer has what is known of it; it ends
//
// A node that is wiped begins anew: the entry that makes it a member is a later one.
type standing struct {
	Admitted uint64 `json:"admitted"` // entry that has made it a member; 0: it was one before this was kept
	Starts   uint64 `json:"starts"`   // processes on its disk
	Instance string `json:"instance"` // the last one of them
	Term     uint64 `json:"term"`
	Entry    uint64 `json:"entry"` // that its log has for good; of a process that begins, the newest of its log
	// Led is the newest term that the node has led: of a greeting, and of what is known of others.
	Led uint64 `json:"led,omitempty"`
}

// older reports whether a process that has begun with s has an older disk than a standing that is known
// of its node.
func (s *standing) older(known *standing) bool {
	switch {
	case s.Admitted != known.Admitted:
		return s.Admitted < known.Admitted
	case s.Starts == known.Starts && s.Instance == known.Instance:
		return false // known is of this process
	}
	return s.Starts <= known.Starts || s.Term < known.Term || s.Entry < known.Entry
}

// oldDisk says that the disk of a node is older than another node knows.
func oldDisk(node, by string, began, known *standing) error {
	return fmt.Errorf("the disk of node %s is an older copy, or another process runs on a copy of it: it has entries up to %d in term %d at start %d, and node %s knows of entry %d in term %d at start %d: never bring an old disk back; empty storage.path and cluster.path of this node, and it joins again",
		node, began.Entry, began.Term, began.Starts, by, known.Entry, known.Term, known.Starts)
}

// Keys of the log's metadata.
const (
	startsKey = "FilaStarts"
	knownKey  = "FilaKnown"
	ledKey    = "FilaLed"
)

// knownEvery is how often what is known of running processes is made durable.
const knownEvery = 10 * time.Second

// begin counts this start durably, and reads what is known of others. It comes before Raft.
func (n *Node) begin(id *identity, log *raftLog, snaps *snapshots) error {
	starts, err := log.GetUint64([]byte(startsKey))
	if err != nil {
		return err
	}
	term, err := log.GetUint64([]byte("CurrentTerm")) // as Raft names it
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	if meta := snaps.newest(); meta != nil {
		last = max(last, meta.Index)
	}
	led, err := log.GetUint64([]byte(ledKey))
	if err != nil {
		return err
	}
	text, err := log.Get([]byte(knownKey))
	if err != nil {
		return err
	}
	known := map[string]*standing{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &known); err != nil {
			return fmt.Errorf("what is known of other nodes: %w", err)
		}
	}
	if err := log.SetUint64([]byte(startsKey), starts+1); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ledTerm = led
	n.heardOf, n.began = known, &standing{Admitted: id.Admitted, Starts: starts + 1, Instance: n.port.instance, Term: term, Entry: last}
	return nil
}

// standings implements Port.standings.
func (n *Node) standings(addr string) (began, known *standing) {
	node := ""
	for _, s := range n.members() {
		if string(s.Address) == addr {
			node = string(s.ID)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.began == nil {
		return nil, nil
	}
	now := *n.began
	now.Led = n.ledTerm
	return &now, n.copyKnown(node)
}

// copyKnown returns what is known of a node, nil if nothing is. The caller holds mu.
func (n *Node) copyKnown(node string) *standing {
	s := n.heardOf[node]
	if s == nil {
		return nil
	}
	c := *s
	return &c
}

// checkStanding refuses connections of a node with an older disk, and those of a node which knows that the disk
// of this one is.
func (n *Node) checkStanding(from *greeting) error {
	n.mu.Lock()
	began, known := n.began, n.copyKnown(from.Node)
	n.mu.Unlock()
	if began == nil {
		return fmt.Errorf("node %s is starting", n.cfg.ID)
	}
	if err := n.recognize(from.Known, from.Node); err != nil {
		return err
	}
	if from.Standing != nil && from.Standing.Led > 0 {
		if err := n.oneLeader(from.Standing.Led, raft.ServerID(from.Node)); err != nil {
			return err
		}
	}
	if known != nil && from.Standing != nil && from.Standing.older(known) {
		return oldDisk(from.Node, n.cfg.ID, from.Standing, known)
	}
	return nil
}

// recognize ends this node if another one knows that its disk is older.
func (n *Node) recognize(known *standing, by string) error {
	n.mu.Lock()
	began := n.began
	n.mu.Unlock()
	if known == nil || began == nil || !began.older(known) {
		return nil
	}
	err := oldDisk(n.cfg.ID, by, began, known)
	n.fatal(err)
	return err
}

// noteStanding notes what a member has told at its address.
func (n *Node) noteStanding(s *Status) {
	if s.Starts == 0 {
		return // it has not begun, or does not tell
	}
	said := &standing{Admitted: s.Admitted, Starts: s.Starts, Instance: s.Instance, Term: s.Term, Entry: s.Settled}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.began == nil || n.identity == nil || s.Cluster != n.identity.Cluster {
		return
	}
	known := n.heardOf[s.Node]
	if known != nil {
		said.Led = known.Led
	}
	switch {
	case known == nil:
	case said.Starts == known.Starts && said.Instance == known.Instance && said.Admitted == known.Admitted:
		if said.Term <= known.Term && said.Entry <= known.Entry {
			return
		}
		said.Term, said.Entry = max(said.Term, known.Term), max(said.Entry, known.Entry)
		n.heardOf[s.Node] = said
		n.learnt = true
		return
	case said.older(known):
		return
	}
	n.heardOf[s.Node] = said
	n.learnt, n.kept = true, time.Time{} // at once
}

// keepKnown makes durable what is known of others, if it is time or must be now.
func (n *Node) keepKnown(now bool) {
	n.keeping.Lock() // a write must not come after a later one
	defer n.keeping.Unlock()
	n.mu.Lock()
	log := n.log
	if !n.learnt || !now && time.Since(n.kept) < knownEvery || log == nil {
		n.mu.Unlock()
		return
	}
	n.learnt, n.kept = false, time.Now()
	text, err := json.Marshal(n.heardOf)
	n.mu.Unlock()
	if err == nil {
		err = log.trySet([]byte(knownKey), text)
	}
	if err != nil {
		n.mu.Lock()
		n.learnt = true // again after a while
		n.mu.Unlock()
		n.cfg.Log.Warn().Err(err).Msg("what other nodes have told was not written")
	}
}

// noteLed makes durable that this node leads a term, before it writes anything in that term but its first entry.
func (n *Node) noteLed(term uint64) error {
	if err := n.log.trySet([]byte(ledKey), binary.LittleEndian.AppendUint64(nil, term)); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ledTerm = term
	return nil
}

// oneLeader notes that a node leads, or has led, a term, and ends this node if it knows that another one has, be
// it this one or one that it followed: a voter has voted twice, as it does with an old disk. Their entries have the same
// terms, so Raft would not tell them apart.
func (n *Node) oneLeader(term uint64, id raft.ServerID) error {
	other := n.otherLeader(term, string(id))
	if other == "" {
		return nil
	}
	err := fmt.Errorf("node %s has led term %d, as node %s has: a node has voted twice, as it has come back with an old copy of its disk; this node ends and keeps its data: see \"Old disks\" in docs/how-to/cluster.md: %w", id, term, other, storage.ErrCorrupt)
	n.fatal(err)
	return err
}

// otherLeader returns a node other than id that is known to have led a term; empty: none is, and it is noted of id.
func (n *Node) otherLeader(term uint64, id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.heardOf[id]
	if id == n.cfg.ID || n.began == nil || known != nil && known.Led == term {
		return ""
	}
	if term == n.ledTerm {
		return n.cfg.ID
	}
	for node, s := range n.heardOf {
		if s.Led == term && node != id {
			return node
		}
	}
	if known == nil {
		known = &standing{}
		n.heardOf[id] = known
	}
	if term > known.Led {
		known.Led, n.learnt, n.kept = term, true, time.Time{}
	}
	return ""
}
