package settings

import (
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"math"
	"reflect"

	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/storage"
)

// KeyOptions are the settings of a fairness key that a command changes; nil: unchanged.
type KeyOptions struct {
	Weight   *uint32 // from 1 to Limits.Weight
	MaxDepth *uint64 // messages that the key may have, in place of the queue's KeyMaxDepth; 0: that
}

// Apply checks the options and writes them into settings.
func (o *KeyOptions) Apply(set *storage.Key, l *limits.Limits) error {
	if o.Weight != nil {
		if *o.Weight < 1 || *o.Weight > l.Weight {
			return fmt.Errorf("%w: WEIGHT must be from 1 to %d", refusals.ErrInvalid, l.Weight)
		}
		set.Weight = *o.Weight
	}
	if o.MaxDepth != nil {
		if *o.MaxDepth > math.MaxInt64 {
			return fmt.Errorf("%w: MAXDEPTH must be from 0 to %d", refusals.ErrInvalid, int64(math.MaxInt64))
		}
		set.MaxDepth = *o.MaxDepth
	}
	return nil
}

// Keys are the settings of the fairness keys of a queue that have some of their own. The zero value has none.
//
// Their records have the number of the queue in their keys, and a purge gives the queue another number. There may
// be 100,000 records. So they are written under the next number in slices before the purge, and the purge itself is one
// write:
//
//  1. The move takes a number that no queue has ever had (BeginMove).
//  2. In slices, it writes the settings under that number (MoveNext). Changes in the meantime are written
//     under both numbers. None of these writes has an effect yet, since no queue has the
//     number.
//  3. When all settings are written, the purge gives the queue the number (EndMove).
//
// A crash before step 3 leaves settings under a number without a queue, which the engine deletes.
//
//	none → moving     BeginMove, for a purge of a queue with many settings
//	moving → none     EndMove: the purge is done; Abandon: the queue is deleted instead
type Keys struct {
	of      map[string]storage.Key
	bounded int // of these, those with a maximum depth
	moving  *move
}

// move is the write of all settings under the next number of the queue.
type move struct {
	by any // the task of the purge
	no uint32
	it *reflect.MapIter // over Keys.of: visits one that exists throughout exactly once
}

// Of returns the settings of a key, and whether it has some of its own.
func (s *Keys) Of(key string) (set storage.Key, ok bool) {
	set, ok = s.of[key]
	return set, ok
}

// All visits the keys with settings.
func (s *Keys) All() iter.Seq2[string, storage.Key] { return maps.All(s.of) }

// Len returns the number of keys with settings.
func (s *Keys) Len() int { return len(s.of) }

// AnyMaxDepth reports whether a key has a maximum depth of its own.
func (s *Keys) AnyMaxDepth() bool { return s.bounded > 0 }

// Set gives a key settings of its own, in memory.
func (s *Keys) Set(key string, set storage.Key) {
	if s.of == nil {
		s.of = map[string]storage.Key{}
	}
	s.bounded += bounds(set) - bounds(s.of[key])
	s.of[key] = set
}

// Unset takes them from it.
func (s *Keys) Unset(key string) {
	s.bounded -= bounds(s.of[key])
	delete(s.of, key)
}

// bounds is 1 for settings that bound the messages of the key.
func bounds(set storage.Key) int {
	if set.MaxDepth > 0 {
		return 1
	}
	return 0
}

// DropUnpinned drops settings from memory that are not pinned: they end with the messages of their keys.
func (s *Keys) DropUnpinned() {
	for key, set := range s.of {
		if !set.Pinned {
			s.Unset(key)
		}
	}
}

// Write writes the settings of a key, under both numbers during a move. Settings that are
// not pinned end with the purge and are not moved.
func (s *Keys) Write(b *storage.Batch, no uint32, key string, set storage.Key) {
	b.Put(storage.State, keyUnder(no, key), set.Append(nil))
	if s.moving != nil && set.Pinned {
		b.Put(storage.State, keyUnder(s.moving.no, key), set.Append(nil))
	}
}

// Delete deletes the settings of a key, under both numbers during a move.
func (s *Keys) Delete(b *storage.Batch, no uint32, key string) {
	b.Delete(storage.State, keyUnder(no, key))
	if s.moving != nil {
		b.Delete(storage.State, keyUnder(s.moving.no, key))
	}
}

// Moving reports whether the settings are being moved, and whether that is for the purge by this task.
func (s *Keys) Moving(by any) (moving, own bool) {
	return s.moving != nil, s.moving != nil && s.moving.by == by
}

// BeginMove begins to move the settings to a number, for the purge by a task, named by what the caller has of it.
func (s *Keys) BeginMove(by any, no uint32) {
	s.moving = &move{by: by, no: no, it: reflect.ValueOf(s.of).MapRange()}
}

// MoveNext writes the settings of one more key under the next number, and reports whether there was one.
func (s *Keys) MoveNext(b *storage.Batch) bool {
	m := s.moving
	if !m.it.Next() {
		return false
	}
	set, _ := reflect.TypeAssert[storage.Key](m.it.Value())
	b.Put(storage.State, keyUnder(m.no, m.it.Key().String()), set.Append(nil))
	return true
}

// EndMove ends a move: the records are under the number that it returns.
func (s *Keys) EndMove() (no uint32) {
	no, s.moving = s.moving.no, nil
	return no
}

// WriteAll writes all settings under a number.
func (s *Keys) WriteAll(b *storage.Batch, no uint32) {
	for key, set := range s.of {
		b.Put(storage.State, keyUnder(no, key), set.Append(nil))
	}
}

// Abandon deletes what a move has written for a queue that is deleted instead of purged.
func (s *Keys) Abandon(b *storage.Batch) {
	if s.moving != nil {
		DeleteKeys(b, s.moving.no)
		s.moving = nil
	}
}

// DeleteKeys deletes all settings of keys under the number of a queue.
func DeleteKeys(b *storage.Batch, no uint32) {
	prefix := storage.AppendStateKey(nil, storage.StateKey, number(no))
	b.DeleteRange(storage.State, prefix, storage.After(prefix))
}

// ParseKey returns the number of the queue in the key of a record, and the fairness key.
func ParseKey(parts []string) (no uint32, key string, err error) {
	if len(parts[0]) != 4 {
		return 0, "", storage.ErrCorrupt
	}
	return binary.BigEndian.Uint32([]byte(parts[0])), parts[1], nil
}

// keyUnder returns the key of a fairness key's settings.
func keyUnder(no uint32, key string) []byte {
	return storage.AppendStateKey(nil, storage.StateKey, number(no), key)
}

// number returns the number of a queue as it is in keys of records.
func number(no uint32) string { return string(binary.BigEndian.AppendUint32(nil, no)) }
