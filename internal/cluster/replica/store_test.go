package replica

import (
	"bytes"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
)

// oneNode is a log of one node: what is proposed is applied at once, in the term of the call.
type oneNode struct {
	machine *Machine
	term    uint64 // of the log
	index   uint64
	lost    error // what is proposed from now on is not applied
	calls   int
}

func (l *oneNode) Propose(term uint64, entries iter.Seq[[]byte]) error {
	if l.calls++; l.lost != nil {
		return l.lost
	}
	if term != l.term {
		return storage.ErrDeposed
	}
	for e := range entries {
		l.index++
		if err := l.machine.Apply(l.index, l.term, e); err != nil {
			return err
		}
	}
	return nil
}

func leading(t *testing.T, term uint64) (*storage.Memory, *oneNode, *Store) {
	t.Helper()
	store, m := claimed(t)
	log := &oneNode{machine: m, term: term}
	return store, log, NewStore(store, log, term, m.LastOf(term))
}

func batchOf(keys ...string) *storage.Batch {
	var b storage.Batch
	for _, k := range keys {
		b.Put(storage.Messages, []byte(k), []byte("value"))
	}
	return &b
}

func TestACommitIsInTheLocalStoreWhenItReturns(t *testing.T) {
	_, log, s := leading(t, 4)
	s.PartBytes = 30
	for i, keys := range [][]string{{"a"}, {"b", "c", "d"}, {"e"}} {
		must(t, s.Commit(batchOf(keys...), true))
		for _, k := range keys {
			if v, err := s.Get(storage.Messages, []byte(k)); err != nil || string(v) != "value" {
				t.Errorf("%s: %q, %v", k, v, err)
			}
		}
		if got := log.machine.LastOf(4); got != uint64(i+1) {
			t.Errorf("the batch has the number %d", got)
		}
	}
	if log.index <= 3 {
		t.Errorf("%d entries: no batch was divided", log.index)
	}
	it := s.Scan(storage.Messages, nil, nil)
	defer it.Close()
	n := 0
	for it.Next() {
		n++
	}
	if n != 5 {
		t.Errorf("a scan finds %d records", n)
	}
}

func TestAnEmptyBatchIsNotProposed(t *testing.T) {
	_, log, s := leading(t, 1)
	must(t, s.Commit(&storage.Batch{}, true))
	if log.calls != 0 {
		t.Error("it is in the log")
	}
}

func TestAfterAFailedProposalNothingElseIsProposed(t *testing.T) {
	for _, cause := range []error{storage.ErrDeposed, errors.New("the log is closed")} {
		store, log, s := leading(t, 1)
		must(t, s.Commit(batchOf("a"), true))
		log.lost = cause
		err := s.Commit(batchOf("b"), true)
		if !errors.Is(err, storage.ErrDeposed) || !errors.Is(err, cause) || strings.Count(err.Error(), storage.ErrDeposed.Error()) != 1 {
			t.Errorf("%v is answered with %v", cause, err)
		}
		log.lost = nil
		wantDeposed(t, s.Commit(batchOf("c"), true))
		must(t, s.Reopen())
		must(t, s.Sync())
		wantDeposed(t, s.Commit(batchOf("c"), true))
		if has(store, "c") || log.calls != 2 {
			t.Error("a later batch is proposed")
		}
	}
}

func TestABatchThatIsTooLargeEndsNothing(t *testing.T) {
	_, log, s := leading(t, 1)
	s.PartBytes = 1
	big := batchOf(strings.Repeat("k", PartsMax))
	if err := s.Commit(big, true); err == nil || errors.Is(err, storage.ErrDeposed) || log.calls != 0 {
		t.Errorf("it is answered with %v, after %d proposals", err, log.calls)
	}
	must(t, s.Commit(batchOf("a"), true))
	if log.machine.LastOf(1) != 1 {
		t.Errorf("the batch that follows has the number %d", log.machine.LastOf(1))
	}
}

func TestAnEngineThatStartsAgainInATermContinuesItsNumbers(t *testing.T) {
	store, log, s := leading(t, 3)
	must(t, s.Commit(batchOf("a"), true))
	must(t, s.Commit(batchOf("b"), true))
	again := NewStore(store, log, 3, log.machine.LastOf(3))
	must(t, again.Commit(batchOf("c"), true))
	log.term = 5
	later := NewStore(store, log, 5, log.machine.LastOf(5))
	must(t, later.Commit(batchOf("d"), true))
	wantDeposed(t, again.Commit(batchOf("e"), true))
	if got := holds(store, "a", "b", "c", "d", "e"); got != "a b c d" {
		t.Errorf("the store has %q", got)
	}
}

// recorder is a log that keeps what is proposed.
type recorder struct{ entries [][]byte }

func (l *recorder) Propose(_ uint64, entries iter.Seq[[]byte]) error {
	for e := range entries {
		l.entries = append(l.entries, e)
	}
	return nil
}

// What is written before all members read a format has the one of before.
func TestFormatsAreWrittenOnceEveryMemberReadsThem(t *testing.T) {
	store, _ := claimed(t)
	log := &recorder{}
	s := NewStore(store, log, 1, 0)
	next := Versions{EntryVersion + 1, storage.ReplicaFormatVersion + 1}
	for i, x := range []struct {
		raise   Versions
		version uint8
		format  bool // the batch has the format of the store
	}{{First(), EntryVersion, false}, {next, EntryVersion + 1, true}, {next, EntryVersion + 1, false}} {
		s.Raise(x.raise)
		must(t, s.Commit(batchOf("a"), true))
		e := log.entries[i]
		if hasFormat := bytes.Contains(e, []byte("format")); e[0] != x.version || hasFormat != x.format {
			t.Errorf("batch %d has version %d, and the format of the store: %v", i, e[0], hasFormat)
		}
	}
	// The first of the new version is refused by a program that does not read it.
	if _, err := ParseEntry(log.entries[0]); err != nil {
		t.Error(err)
	}
	if _, err := ParseEntry(append([]byte{EntryNewest + 1}, log.entries[1][1:]...)); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer version: %v", err)
	}
}

func TestVersionsAreCommonWhereBothReadThem(t *testing.T) {
	older, newer, mixed := Versions{1, 2}, Versions{2, 3}, Versions{1, 3}
	if newer.Common(mixed) != mixed || older.Common(newer) != older || mixed.Common(Versions{2, 2}) != older {
		t.Error("what two versions have in common is not the lesser of each")
	}
	if !newer.Reads(older) || !newer.Reads(newer) || older.Reads(mixed) || mixed.Reads(newer) {
		t.Error("a version reads what it should not, or does not what it should")
	}
}
