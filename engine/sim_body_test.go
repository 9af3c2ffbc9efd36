package engine

import (
	"time"

	"github.com/faisca/fila/storage"
)

// Bodies in the simulation. In a part of the seeds the messages of each publish share their payload,
// however short. After a crash and at the end each message that refers to a body has one, whose
// holders name it; when the queues are empty and what looks for unheld bodies has had its time, there is
// none.

// checkBodies checks what the messages in the store refer to.
func (s *sim) checkBodies() {
	it := s.step.store.Scan(storage.Messages, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; ok = it.Next() {
		id, shared := storage.BodyOf(it.Value())
		if !shared {
			continue
		}
		var h storage.Holders
		holders, err := s.step.store.Get(storage.Bodies, storage.AppendHoldersKey(nil, id))
		if err == nil {
			err = h.Decode(holders)
		}
		named := false
		for _, key := range h.Messages {
			named = named || key == string(it.Key())
		}
		if _, missing := s.step.store.Get(storage.Bodies, storage.AppendBodyKey(nil, id)); missing != nil || err != nil || !named {
			s.oracle.fail("message %x refers to the body %s: %v, %v, is named %v", it.Key(), id, missing, err, named)
			return
		}
	}
}

// endBodies checks that no body is left. Nothing is in the queues.
func (s *sim) endBodies() {
	s.step.Advance(5 * time.Second)
	s.oracle.now = s.step.now
	it := s.step.store.Scan(storage.Bodies, nil, nil)
	defer it.Close()
	if it.Seek(nil) {
		s.oracle.fail("the queues are empty, and the record %x of a body is left", it.Key())
	}
}

// breakBodies plants the fault that bodies without a count are never looked up.
func (s *sim) breakBodies() {
	if s.mutant == bodyForgotten {
		_ = s.step.core.bodies.Look() // is not read
	}
}

// freeBodies is the mutant that deletes a body with the first of its messages.
func (s *crashStore) freeBodies(b *storage.Batch) {
	var free []ID
	_ = b.Each(func(r storage.Record) error {
		if r.Op != storage.OpSingleDelete || r.Family != storage.Messages {
			return nil
		}
		record, err := s.Get(storage.Messages, r.Key)
		if err != nil {
			return nil //nolint:nilerr // it is stored in this batch
		}
		if id, ok := storage.BodyOf(record); ok {
			free = append(free, id)
		}
		return nil
	})
	for _, id := range free {
		storage.DeleteBody(b, id)
	}
}
