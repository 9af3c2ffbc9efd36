// Package storetest is the conformance suite of stores: the contract that the engine
// relies on.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/faisca/fila/storage"
)

// Store is the interface of a store under test.
type Store interface {
	Commit(b *storage.Batch, sync bool) error
	Sync() error
	Get(f storage.Family, key []byte) ([]byte, error)
	Scan(f storage.Family, from, to []byte) storage.Iterator
	Reopen() error
	Checkpoint(dir string) error
	Close() error
}

// Open opens the store in a directory, new or not, and fails the test if it cannot. The
// caller closes the store; reopening a directory yields what was committed there.
type Open func(t *testing.T, dir string) Store

// Exercise runs the suite. Each test gets a store in a directory of its own.
func Exercise(t *testing.T, open Open) {
	t.Helper()
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, s *subject)
	}{
		{"ANewStoreHoldsOnlyItsFormat", newStore},
		{"ABatchIsAppliedInItsOrder", batchOrder},
		{"ABatchIsUsedAgain", batchReuse},
		{"AnEmptyBatchIsCommitted", emptyBatch},
		{"AMissingKeyIsErrNotFound", missingKey},
		{"WhatGetReturnsIsTheCallersOwn", getCopies},
		{"EmptyKeysAndValuesAreKept", emptyValues},
		{"KeysAreBytes", binaryKeys},
		{"FamiliesAreSeparate", familiesSeparate},
		{"LargeValuesAreKept", largeValues},
		{"ScanIsInOrder", scanOrder},
		{"ScanKeepsItsBounds", scanBounds},
		{"SeekKeepsTheBounds", seekBounds},
		{"SeekGoesBackAndForth", seekBack},
		{"AnIteratorStartsBeforeTheFirstKey", nextFirst},
		{"ResultsAreReadBackwards", before},
		{"AnIteratorStaysAtItsEnd", pastEnd},
		{"AnIteratorSeesTheStoreAsItWas", snapshot},
		{"AnIteratorOfKeysOnlySeesTheSame", keysOnly},
		{"RangesOfKeysAreWhatScanSees", rangesOfKeys},
		{"ManyMessagesAreReadAtATime", manyMessages},
		{"AnIteratorIsClosedTwice", closeTwice},
		{"SingleDeleteRemoves", singleDelete},
		{"SingleDeleteAfterOtherDeletes", singleDeleteAgain},
		{"DeleteRangeRemovesWithinItsBounds", deleteRange},
		{"AClosedStoreKeepsWhatWasCommitted", reopen},
		{"AClosedStoreRefuses", refuseClosed},
		{"ReopenLosesNothing", reopenInPlace},
		{"ReopenWaitsForIterators", reopenWaits},
		{"ACheckpointOpensAsAStore", checkpoint},
		{"ACheckpointReplacesNothing", checkpointExists},
		{"ReadersSeeWholeBatches", readersSeeWholeBatches},
		{"AModelAgrees", modelAgrees},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			s := &subject{Store: open(t, dir), t: t, dir: dir, open: open}
			defer s.close()
			tt.run(t, s)
		})
	}
}

// subject is a store under test, with calls that fail the test.
type subject struct {
	Store
	t      *testing.T
	dir    string
	open   Open
	closed bool
}

func (s *subject) close() {
	s.t.Helper()
	if s.closed {
		return
	}
	s.closed = true
	if err := s.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
}

// again closes the store and opens it again.
func (s *subject) again() {
	s.t.Helper()
	s.close()
	s.Store, s.closed = s.open(s.t, s.dir), false
}

func (s *subject) commit(fill func(b *storage.Batch)) {
	s.t.Helper()
	var b storage.Batch
	fill(&b)
	if err := s.Commit(&b, false); err != nil {
		s.t.Fatalf("commit: %v", err)
	}
}

// put writes messages given as key, value, key, value.
func (s *subject) put(kv ...string) {
	s.t.Helper()
	s.commit(func(b *storage.Batch) {
		for i := 0; i < len(kv); i += 2 {
			b.Put(storage.Messages, []byte(kv[i]), []byte(kv[i+1]))
		}
	})
}

// want compares what is under a key of Messages.
func (s *subject) want(key, value string) {
	s.t.Helper()
	got, err := s.Get(storage.Messages, []byte(key))
	if err != nil || string(got) != value {
		s.t.Errorf("%q is %q, %v; want %q", key, got, err, value)
	}
}

func (s *subject) wantNone(key string) {
	s.t.Helper()
	if got, err := s.Get(storage.Messages, []byte(key)); !errors.Is(err, storage.ErrNotFound) || got != nil {
		s.t.Errorf("%q is %q, %v; want %v", key, got, err, storage.ErrNotFound)
	}
}

// wantAll compares all of a family with what is expected.
func (s *subject) wantAll(f storage.Family, want string) {
	s.t.Helper()
	it := s.Scan(f, nil, nil)
	defer it.Close()
	if got := walk(s.t, it, nil); got != want {
		s.t.Errorf("%s holds %q, want %q", f, got, want)
	}
}

// walk returns what an iterator sees from a key on, as "key=value ...".
func walk(t *testing.T, it storage.Iterator, from []byte) string {
	t.Helper()
	var out bytes.Buffer
	for ok := it.Seek(from); ok; ok = it.Next() {
		if out.Len() > 0 {
			out.WriteByte(' ')
		}
		fmt.Fprintf(&out, "%s=%s", it.Key(), it.Value())
	}
	if err := it.Err(); err != nil {
		t.Errorf("scan: %v", err)
	}
	return out.String()
}
