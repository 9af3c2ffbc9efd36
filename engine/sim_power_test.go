package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/faisca/fila/storage"
)

// crashStore crashes the process at a commit, before or right after the write.
type crashStore struct {
	*storage.Memory
	rng    *rand.Rand
	chance float64
	mutant mutant
}

var errCrash = errors.New("crash")

func (s *crashStore) Commit(b *storage.Batch, sync bool) error {
	if slices.Contains([]mutant{ackNotWritten, enqueueNotWritten, tickNotWritten, dedupNotWritten, timeNotForgotten, settlementNotWritten, idForgotten, additionNotWritten, removalNotWritten, signalTimeWrong, actNotWritten, failureNotWritten, failureTwice, holdNotWritten}, s.mutant) {
		b = s.lose(b)
	}
	if s.mutant == bodyFreedEarly {
		s.freeBodies(b)
	}
	at := s.rng.Float64()
	if at < s.chance/2 {
		panic(errCrash)
	}
	commit := s.Memory.Commit
	if s.mutant == uniqueFreedApart {
		commit = s.commitApart
	}
	if s.mutant == doneWrittenApart {
		commit = s.commitEndsFirst
	}
	err := commit(b, sync && s.mutant != replyNotSynced)
	if at < s.chance {
		panic(errCrash)
	}
	return err
}

// Scan hides the index of due times from a mutant.
func (s *crashStore) Scan(f storage.Family, from, to []byte) storage.Iterator {
	if s.mutant == timerLost && f == storage.Scheduled {
		from = []byte{0xff, 0xff}
	}
	return s.Memory.Scan(f, from, to)
}

// lose drops the records that a mutant does not write.
func (s *crashStore) lose(b *storage.Batch) *storage.Batch {
	var out storage.Batch
	_ = b.Each(func(r storage.Record) error {
		switch r.Op {
		case storage.OpPut:
			if s.mutant == enqueueNotWritten && r.Family == storage.Messages && s.rng.IntN(20) == 0 {
				return nil
			}
			if s.mutant == tickNotWritten && b.Len() > 1 && bytes.HasPrefix(r.Key, storage.AppendStateKey(nil, storage.StateCron)) && s.rng.IntN(3) == 0 {
				return nil
			}
			if s.mutant == dedupNotWritten && r.Family == storage.Dedup && binary.BigEndian.Uint64(r.Key[4:]) != storage.UniqueGeneration && s.rng.IntN(4) == 0 {
				return nil
			}
			if s.mutant == additionNotWritten && r.Family == storage.Signals && s.rng.IntN(4) == 0 {
				return nil
			}
			if s.mutant == signalTimeWrong && r.Family == storage.Signals {
				r.Value = minuteEarlier(r.Value)
			}
			if s.mutant == actNotWritten && bytes.HasPrefix(r.Key, storage.AppendStateKey(nil, storage.StateAct)) && r.Family == storage.State && s.rng.IntN(4) == 0 {
				return nil
			}
			if r.Family == storage.Attempts && (s.mutant == failureNotWritten || s.mutant == failureTwice) {
				r.Value = s.breakFailures(r.Value)
			}
			if s.loseBudget(r) || s.loseHold(r) {
				return nil
			}
			out.Put(r.Family, r.Key, r.Value)
		case storage.OpDelete:
			if s.mutant == removalNotWritten && r.Family == storage.Signals && s.rng.IntN(2) == 0 {
				return nil
			}
			out.Delete(r.Family, r.Key)
		case storage.OpSingleDelete:
			if s.mutant == ackNotWritten && r.Family == storage.Messages && s.rng.IntN(20) == 0 {
				return nil
			}
			if s.mutant == timeNotForgotten && r.Family == storage.Scheduled && s.rng.IntN(3) == 0 {
				return nil
			}
			out.SingleDelete(r.Family, r.Key)
		case storage.OpDeleteRange:
			out.DeleteRange(r.Family, r.Key, r.Value)
		}
		return nil
	})
	return &out
}

// With storage.sync at interval or never, a power loss may undo what was answered since the
// last sync, and nothing else. The oracle keeps a list of it.

// unsynced is a reply that a power loss may invalidate.
type unsynced struct {
	m        *oracleMsg
	enqueued bool
	acked    bool
}

// tick is the timer of SyncInterval.
func (s *sim) tick() {
	if s.w.sync == SyncInterval && !s.failing && s.step.now.Sub(s.syncedAt) >= s.cfg.SyncInterval {
		s.syncNow()
	}
}

func (s *sim) syncNow() {
	if err := s.store.Sync(); err != nil {
		s.oracle.fail("sync: %v", err)
	}
	s.syncedAt = s.step.now
	s.oracle.unsynced = nil
	s.oracle.signals.synced()
}

// powerLost makes everything that was not synced uncertain. An earlier state of a message
// may be back, such as its previous lease or due time.
func (o *oracle) powerLost() {
	clear(o.nackTexts)
	o.trace("the power is gone, and %d answers perhaps", len(o.unsynced))
	for _, u := range o.unsynced {
		m := u.m
		if u.enqueued {
			m.perhapsGone = true
		}
		if u.acked {
			delete(o.gone, m.tag)
			o.stored[m.tag] = m
			m.perhapsGone = true
		}
		m.notBefore = time.Time{}
	}
	o.signals.powerLost()
	o.order.received = nil // acks may be lost, and what was acked comes again
	for _, m := range o.byID {
		m.anyReceipt = true
	}
	for _, b := range o.follows {
		b.committed = false // the whole transaction may be lost
	}
}
