package storage

import "bytes"

// KeyWalk finds the fairness keys that have messages, in the order of their queues' numbers and of their names.
//
// To step over a few messages of a key is several times cheaper than to seek behind them, which is cheaper than to step
// over many. A walk seeks after passFew steps, and at once for the next passTrust keys, as those of a queue are often
// alike.
type KeyWalk struct {
	it     Iterator
	first  MessageKey
	prefix []byte // of the keys of the records of its fairness key; nil before the first
	seeks  int    // keys for which it seeks at once
	err    error
}

const (
	passFew   = 8
	passTrust = 15
)

// WalkKeys begins a walk with an iterator over the family messages, which it closes.
func WalkKeys(it Iterator) *KeyWalk { return &KeyWalk{it: KeysOnly(it)} }

// Next moves to the next fairness key. It returns false at the end and after an error.
func (w *KeyWalk) Next() bool {
	if w.err != nil || !w.pass() {
		return false
	}
	if w.first, w.err = ParseMessageKey(w.it.Key()); w.err != nil {
		return false
	}
	w.prefix = AppendKeyPrefix(w.prefix[:0], w.first.Queue, w.first.Key)
	return true
}

// pass moves to the first record behind those of the fairness key.
func (w *KeyWalk) pass() bool {
	if w.prefix == nil {
		return w.it.Seek(nil)
	}
	few := passFew
	if w.seeks > 0 {
		w.seeks--
		few = 1
	}
	for range few {
		if !w.it.Next() {
			return false
		}
		if !bytes.HasPrefix(w.it.Key(), w.prefix) {
			return true
		}
	}
	if few == passFew {
		w.seeks = passTrust
	}
	return w.it.Seek(After(w.prefix))
}

// First returns the first message of the fairness key, by its rank and its id.
func (w *KeyWalk) First() MessageKey { return w.first }

// Err returns the error that ended the walk, or nil.
func (w *KeyWalk) Err() error {
	if w.err != nil {
		return w.err
	}
	return w.it.Err()
}

// Close releases the iterator. Further calls do nothing.
func (w *KeyWalk) Close() { w.it.Close() }
