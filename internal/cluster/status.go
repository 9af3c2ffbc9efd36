package cluster

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
)

// Status is what a node says of itself.
type Status struct {
	Node     string   `json:"node"`
	Instance string   `json:"instance"` // of the process, see greeting
	Addr     string   `json:"addr"`
	Cluster  string   `json:"cluster"` // id; empty: it is in none
	Version  string   `json:"version"`
	Peers    []string `json:"peers"`   // ids of Config.Peers, sorted
	Records  bool     `json:"records"` // the store holds data
	Of       string   `json:"of"`      // id of the cluster that the store was a part of; empty: none
	Trouble  string   `json:"trouble"` // why it does not become a member; empty: nothing
	State    string   `json:"state"`   // entering, follower, candidate or leader
	Term     uint64   `json:"term"`
	Leader   Peer     `json:"leader"` // zero: unknown
	Applied  uint64   `json:"applied"`
	Commit   uint64   `json:"commit"`
	Last     uint64   `json:"last"` // index of the newest entry of its log
	Writable bool     `json:"writable"`
	Clock    int64    `json:"clock"` // nanoseconds since 1970
	// Reads are the newest formats that the node reads.
	Reads    replica.Versions `json:"reads"`
	Members  []string         `json:"members"` // ids, as this node knows them
	Contact  Contact          `json:"contact"`
	Free     uint64           `json:"free"`      // bytes of the disk of the store; 0: unknown
	LogBytes int64            `json:"log_bytes"` // of the replicated log
	Sending  int              `json:"sending"`   // copies of its store that it sends to others
	// Failovers counts the changes from one leader to another that it has seen since its start.
	Failovers uint64 `json:"failovers"`
	// Admitted, Starts and Settled are of its standing, with Term. Starts is 0 before it has begun.
	Admitted uint64 `json:"admitted,omitempty"`
	Starts   uint64 `json:"starts,omitempty"`
	Settled  uint64 `json:"settled,omitempty"`
	// Lacks says that its log lacks the entry that has made it a member: the members that it knows are
	// those of the past, and it does not stand for election.
	Lacks bool `json:"lacks,omitempty"`
	// Known is what the node knows of the one that asks; nil: nothing.
	Known *standing `json:"known,omitempty"`
	// Contacted is the nanoseconds since it heard of the leader; 0 if it leads, negative: it has not.
	Contacted int64 `json:"contacted"`
}

// StateEntering is the state of a node that is not a member yet.
const StateEntering = "entering"

// Status returns the state of this node. It does not wait.
func (n *Node) Status() Status {
	own := n.own()
	s := Status{Node: n.cfg.ID, Instance: n.port.instance, Addr: own.Addr, Version: n.cfg.Version, State: StateEntering, Peers: ids(n.cfg.Peers),
		Clock: time.Now().UnixNano(), Writable: true, Reads: replica.Newest(), Contact: n.cfg.Contact, Contacted: -1,
	}
	if n.cfg.Free != nil {
		s.Free = n.cfg.Free()
	}
	n.mu.Lock()
	r, f, l, id, snaps := n.raft, n.fsm, n.log, n.identity, n.snaps
	s.Trouble, s.Leader, s.Failovers = n.trouble, n.leader, n.failovers
	if n.began != nil {
		s.Admitted, s.Starts = n.began.Admitted, n.began.Starts
	}
	n.mu.Unlock()
	if id != nil {
		s.Cluster = id.Cluster
	}
	if r == nil {
		return s
	}
	s.State, s.Term, s.Commit, s.Last = stateName(r.State()), r.CurrentTerm(), r.CommitIndex(), r.LastIndex()
	s.Lacks = s.Last < id.Admitted
	s.Applied, _ = f.applied()
	s.Settled = f.settled()
	s.Writable = f.writable() && !l.Full()
	s.LogBytes, s.Sending = n.logBytes.Load(), snaps.underWay()
	for _, m := range n.members() {
		s.Members = append(s.Members, string(m.ID))
	}
	if s.State == "leader" {
		s.Contacted = 0
	} else if at := r.LastContact(); !at.IsZero() {
		s.Contacted = int64(time.Since(at))
	}
	return s
}

func stateName(s raft.RaftState) string {
	switch s {
	case raft.Leader:
		return "leader"
	case raft.Candidate:
		return "candidate"
	default:
		return "follower"
	}
}

// answer answers a question of another node.
func (n *Node) answer(from string, q question, body []byte) ([]byte, error) {
	switch q {
	case askTerm:
		return n.answerTerm()
	case askStatus:
		s := n.Status()
		n.mu.Lock()
		s.Known = n.copyKnown(from)
		n.mu.Unlock()
		if s.Cluster == "" {
			var err error
			if s.Records, s.Of, err = holds(n.cfg.Store); err != nil {
				return nil, err
			}
		}
		return json.Marshal(s)
	case askJoin:
		var j joining
		if err := json.Unmarshal(body, &j); err != nil {
			return nil, err
		}
		return n.admit(from, &j)
	case askChange:
		var c change
		if err := json.Unmarshal(body, &c); err != nil {
			return nil, err
		}
		return n.perform(n.life, &c)
	case askDigest:
		if len(body) != 8 {
			return nil, fmt.Errorf("a question of %d bytes for a digest", len(body))
		}
		return json.Marshal(n.digest(binary.BigEndian.Uint64(body)))
	case askVerdict:
		var of digest
		if err := json.Unmarshal(body, &of); err != nil {
			return nil, err
		}
		n.convicted(of)
		return nil, nil
	default:
		return nil, fmt.Errorf("node %s does not know the question %q: upgrade it", n.cfg.ID, q)
	}
}

func (n *Node) answerTerm() ([]byte, error) {
	n.mu.Lock()
	r, f := n.raft, n.fsm
	n.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("node %s has not joined the cluster yet", n.cfg.ID)
	}
	applied, has := f.applied()
	if !has {
		return nil, fmt.Errorf("node %s has not got the data yet", n.cfg.ID)
	}
	return termAnswer{term: r.CurrentTerm(), last: r.LastIndex(), applied: applied, clock: time.Now().UnixNano(), reads: replica.Newest()}.append(nil), nil
}

// holds reports whether a store holds data, and which cluster it was a part of.
func holds(store LocalStore) (records bool, of string, err error) {
	r, err := replica.ReadRecord(store)
	if err != nil {
		return false, "", err
	}
	if r != nil {
		of, records = r.Cluster, r.Index > 0
	}
	for _, f := range storage.Families() {
		if records {
			break
		}
		if records, err = holdsAny(store, f); err != nil {
			return false, "", err
		}
	}
	return records, of, nil
}

// holdsAny reports whether a family has a record besides those that make it the store of a node.
func holdsAny(store LocalStore, f storage.Family) (bool, error) {
	if f == storage.Default {
		return false, nil // the format
	}
	it := store.Scan(f, nil, nil)
	defer it.Close()
	for it.Next() {
		if f != storage.State || string(it.Key()) != string(storage.ReplicaKey()) && !storage.IsUsers(it.Key()) && !storage.IsLearner(it.Key()) {
			return true, nil
		}
	}
	return false, it.Err()
}
