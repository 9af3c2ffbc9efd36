package storage_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/faisca/fila/storage"
)

func TestLearnersAreRecordsOfTheirOwn(t *testing.T) {
	s := storage.NewMemory()
	want := func(nodes string) {
		t.Helper()
		if got, err := storage.ReadLearners(s); fmt.Sprint(got) != nodes || err != nil {
			t.Errorf("%v, %v, want %s", got, err, nodes)
		}
	}
	want("[]")
	commit(t, s, true, func(b *storage.Batch) {
		storage.PutLearner(b, "b", true)
		storage.PutLearner(b, "a", true)
		storage.PutLearner(b, "node-10", true)
		b.Put(storage.State, storage.AppendStateKey(nil, "learnes", "x"), nil)
		b.Put(storage.State, storage.AppendStateKey(nil, "learnep", "x"), nil)
	})
	want("[a b node-10]")
	commit(t, s, true, func(b *storage.Batch) {
		storage.PutLearner(b, "b", false)
		storage.PutLearner(b, "unknown", false)
	})
	want("[a node-10]")
	if !storage.IsLearner(storage.LearnerKey("a")) || storage.IsLearner(storage.ReplicaKey()) || storage.IsLearner(storage.UserKey("learner")) {
		t.Error("learners are not told from other records")
	}
	commit(t, s, true, storage.DeleteLearners)
	want("[]")
	for _, name := range []string{"learnes", "learnep"} {
		if _, err := s.Get(storage.State, storage.AppendStateKey(nil, name, "x")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	commit(t, s, true, func(b *storage.Batch) { b.Put(storage.State, storage.AppendStateKey(nil, "learner", "a", "b"), nil) })
	if _, err := storage.ReadLearners(s); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a learner with two names: %v", err)
	}
}
