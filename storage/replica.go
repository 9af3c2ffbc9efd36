package storage

// Replica is the record of a store that a node of a cluster has: up to where it has applied the
// replicated log. Its key is ReplicaKey. A store that one broker has for itself has none.
type Replica struct {
	Cluster string // id of the cluster
	Index   uint64 // of the newest entry of the log that is in the store; 0: none
	Term    uint64 // of that entry
	Number  uint64 // of its batch, counted within the term from 1
}

// stateReplica is the first and only part of ReplicaKey.
const stateReplica = "replica"

// ReplicaKey returns the key of the Replica record in the family State.
func ReplicaKey() []byte { return AppendStateKey(nil, stateReplica) }

// Append appends the encoded record.
func (r *Replica) Append(dst []byte) []byte { return encode(dst, r) }

// Decode reads a record that Append made. A record without a cluster is corrupt, and so is one
// that has a position without one of its three numbers.
func (r *Replica) Decode(b []byte) error { return decode(b, r, Replica{}, "replica", (*Replica).valid) }

func (r *Replica) valid() bool {
	begun := r.Index != 0
	return r.Cluster != "" && begun == (r.Term != 0) && begun == (r.Number != 0)
}

func (r *Replica) fields(c *codec) {
	c.string(1, &r.Cluster)
	c.uint64(2, &r.Index)
	c.uint64(3, &r.Term)
	c.uint64(4, &r.Number)
}
