package storage

import "fmt"

// A node that an operator has made a learner has a record in the family State of a cluster's store, whose
// value is empty: the leader does not give it a vote. A store that one broker has for itself has none.
const stateLearner = "learner" // then name of the node

// LearnerKey returns the key of the record of a node.
func LearnerKey(node string) []byte { return AppendStateKey(nil, stateLearner, node) }

// PutLearner adds the record of a node to a batch, or its removal.
func PutLearner(b *Batch, node string, learner bool) {
	if learner {
		b.Put(State, LearnerKey(node), nil)
	} else {
		b.Delete(State, LearnerKey(node))
	}
}

// DeleteLearners adds to a batch the removal of all such records.
func DeleteLearners(b *Batch) {
	prefix := AppendStateKey(nil, stateLearner)
	b.DeleteRange(State, prefix, After(prefix))
}

// IsLearner reports whether a key of the family State is that of such a record.
func IsLearner(key []byte) bool {
	parts, err := ParseStateKey(key)
	return err == nil && len(parts) > 0 && parts[0] == stateLearner
}

// ReadLearners returns the names of the nodes that a store has records of, in order.
func ReadLearners(store interface {
	Scan(f Family, from, to []byte) Iterator
},
) (nodes []string, err error) {
	prefix := AppendStateKey(nil, stateLearner)
	it := store.Scan(State, prefix, After(prefix))
	defer it.Close()
	for it.Next() {
		parts, err := ParseStateKey(it.Key())
		if err != nil || len(parts) != 2 {
			return nil, fmt.Errorf("learner %.80q: %w", it.Key(), ErrCorrupt)
		}
		nodes = append(nodes, parts[1])
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("learners: %w", err)
	}
	return nodes, nil
}
