package engine

import (
	"fmt"
	"maps"
	"testing"

	"github.com/faisca/fila/storage"
)

// stored returns the users in the store and their version.
func (w *world) storedUsers() (map[string]string, uint64) {
	w.t.Helper()
	version, lines, err := storage.ReadUsers(w.core.store, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return lines, version
}

func TestUsersAreInTheStoreWithTheReply(t *testing.T) {
	w := newWorld(t, nil)
	if lines, version := w.storedUsers(); lines != nil || version != 0 {
		t.Errorf("a new store has the users %v", lines)
	}
	w.must(func(tx *Tx) error { return tx.SetUsers(map[string]string{"a": "1", "b": "1", "c": "1"}) })
	w.must(func(tx *Tx) error { return tx.SetUsers(map[string]string{"a": "2", "b": "", "unknown": ""}) })
	w.restart()
	w.must(func(tx *Tx) error {
		if tx.User("a") != "2" || tx.User("b") != "" || fmt.Sprint(tx.Users()) != "[a c]" {
			t.Errorf("after a restart the users are %v", tx.Users())
		}
		return tx.SetUsers(map[string]string{"a": "3"})
	})
	if lines, version := w.storedUsers(); !maps.Equal(lines, map[string]string{"a": "3", "c": "1"}) || version != 3 {
		t.Errorf("the store has %v of version %d", lines, version)
	}
}

func TestALearnerIsInTheStoreWithTheReply(t *testing.T) {
	w := newWorld(t, nil)
	want := func(nodes string) {
		t.Helper()
		if got, err := storage.ReadLearners(w.core.store); fmt.Sprint(got) != nodes || err != nil {
			t.Errorf("the store has the learners %v, %v, want %s", got, err, nodes)
		}
	}
	for range 2 {
		w.must(func(tx *Tx) error { return tx.SetLearner("c", true) })
		want("[c]")
	}
	w.must(func(tx *Tx) error { return tx.SetLearner("d", true) })
	w.restart()
	want("[c d]")
	for range 2 {
		w.must(func(tx *Tx) error { return tx.SetLearner("c", false) })
		want("[d]")
	}
}
