// Package cluster makes a broker a node of a cluster: it keeps the replicated log with
// hashicorp/raft, finds out who leads, and brings nodes in. What the entries of the log mean is
// internal/cluster/replica's.
//
//	           ┌──────────── Node ─────────────┐
//	engine ──► │ replica.Store ─► Raft ─► fsm ─┼─► replica.Machine ─► local store
//	(leader)   │    ▲               │          │
//	           │ confirmer       raftLog       │
//	           └────┼───────────────┼──────────┘
//	              Port ◄── TLS ──► Ports of the other nodes
//
// # Files
//
//	node.go          a node from its start to its end
//	lead.go          taking over, leading, ceasing, handing over
//	confirm.go       whether this node still leads
//	fsm.go           Raft's entries go to the machine; a local store that refuses a write
//	snapshot.go      snapshots: metadata on disk, a checkpoint of the store when one is sent
//	enter.go join.go how a node without an identity forms a cluster or joins one
//	members.go       which members vote
//	status.go        what a node says of itself, and to the questions of others
//	roster.go        what a node knows of the others; await.go: waiting for them to have the same
//	standing.go      how far each node has come; an older copy of a disk is refused
//	change.go        what operators ask of the leader: to remove a node, to hand over, to compare
//	digest.go        comparing the stores of all nodes
//	identity.go      which cluster a directory belongs to
//	raftlog.go       Raft's log on disk: full disks, errors; raftlog_tail.go its end after a crash
//	asynclog.go      a leader writes its log while Raft sends the entries
//	port.go          the node port, its greeting; question.go: questions and answers on it
//	transport.go     Raft's connections
//
// # Invariants
//
//   - A node without an identity lets no Raft in. hashicorp/raft grants votes to any candidate while
//     it has no configuration: a voter that has lost its disk would help to elect a leader that
//     lacks acknowledged entries.
//   - A leader admits a node only after it has removed an older voter of the same id, and a majority
//     has that removal. So no node asks for a vote of that id which does not know what it has lost.
//   - The log never begins at its first entry: a cluster begins with a snapshot at index 1. So a node
//     without data always gets a snapshot, which has what the first node had before.
//   - Raft's log is cut off only up to an index that the synced local store has.
//   - No node applies an entry, and no proposer learns of it, before it is in the synced logs of a majority.
//   - No node takes part in Raft with another one which knows that it has an older copy of its disk.
//   - No node takes entries of another leader in a term that it has led.
//   - No entry is removed from a log, but at its beginning, that the node knows to be committed.
//   - At any time at most one call of Config.Lead is under way, and it begins after everything that
//     was committed before has been applied.
package cluster
