//go:build cgo

package rocks

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// This file tells what a loss of power leaves at the end of the newest log from damage, and cuts it
// off before RocksDB, which takes it for damage, opens the store.

// checkSurvey returns storage.ErrCorrupt for a store whose files are inconsistent, unless that is what
// a power loss leaves at the end of the newest log, which is cut off. It reads without RocksDB's lock,
// so it reports ErrLocked instead if another process has the store open and may be changing the files.
func checkSurvey(path string, replica bool) error {
	s, err := surveyStore(path)
	if err != nil || len(s.damage) == 0 && s.lastDamaged() == nil {
		return err
	}
	unlock, err := lockStore(path)
	if err != nil {
		return err
	}
	defer unlock()
	if s, err = surveyStore(path); err != nil { // what was seen before may be what another process was writing
		return err
	}
	return s.cutLog(replica)
}

// torn reports whether a loss of power may have left the damage: nothing from there on was surely
// synced, so nothing was acknowledged. It is for the newest log with writes, see spares.cc: a sector of
// it that the disk has not kept is zero, and later ones may be there.
//
// Damage of what was synced is not taken for that: batches behind it say that it was; the last ones,
// with none behind them, have no sector of zeros, unless a payload has; and a log that was closed in
// order has another length.
func (l *surveyedLog) torn() bool {
	return l.whole >= 0 && l.unkept >= 0 && l.synced <= l.unkept && l.bytes%spareBytes == 0
}

// lastDamaged returns the newest log with writes if all damage is in it, else nil. Each log was synced
// before the next one was written to (sealed.cc), so a loss of power leaves damage nowhere else.
func (s *survey) lastDamaged() *surveyedLog {
	for i := range slices.Backward(s.logs) {
		l := &s.logs[i]
		if l.whole < 0 && l.next == 0 {
			continue
		}
		if l.whole >= 0 && !slices.ContainsFunc(s.damage, func(d Damage) bool { return d.File != l.name }) {
			return l
		}
		break
	}
	return nil
}

// cutLog cuts the newest log off at its first damage, if that is all and a power loss may have left
// it: where commits are not synced, any, else what torn recognises. It returns the damage otherwise.
// The caller has the lock of the store.
//
// RocksDB's point-in-time recovery is not enough: it takes a page of zeros at the beginning of a
// record for the end of a block, and goes on behind it with writes missing in between.
func (s *survey) cutLog(replica bool) error {
	l := s.lastDamaged()
	if l == nil || !replica && !l.torn() {
		return s.err()
	}
	f, err := os.OpenFile(filepath.Join(s.path, l.name), os.O_WRONLY, 0)
	if err != nil {
		return reason(err)
	}
	err = f.Truncate(l.whole)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return reason(firstOf(err))
	}
	return nil
}
