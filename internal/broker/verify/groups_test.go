package verify_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/broker/verify"
	"github.com/faisca/fila/storage"
)

// group opens a group with n members in a queue, of which one is dead.
func (b *broker) group(name, queue string, n int) {
	b.t.Helper()
	open := &engine.OpenGroup{Name: name, Message: engine.Enqueue{Queue: queue, Payload: []byte("all")}}
	if err := b.PrepareGroup(open); err != nil {
		b.t.Fatal(err)
	}
	b.do(func(tx *engine.Tx) error { _, err := tx.OpenGroup(open); return err })
	for range n {
		req := &engine.Enqueue{Queue: queue, Group: name, Payload: []byte("x")}
		if err := b.Prepare(req); err != nil {
			b.t.Fatal(err)
		}
		b.do(func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
	}
	b.do(func(tx *engine.Tx) error {
		ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{queue}, Count: 1, Block: -1})
		if err != nil {
			return err
		}
		_, err = tx.Nack(&engine.Nack{Queue: queue, Receipt: ds[0].Receipt, Dead: true})
		return err
	})
}

// countsOf returns the counts of groups in a store, in the order of groups and queues.
func countsOf(t *testing.T, store *storage.Memory) (all []storage.GroupCount) {
	t.Helper()
	prefix := storage.AppendStateKey(nil, storage.StateGroupCount)
	it := store.Scan(storage.State, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		var n storage.GroupCount
		if err := n.Decode(it.Value()); err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

func TestCountsOfGroupsAreThoseOfTheirMembers(t *testing.T) {
	store := storage.NewMemory()
	b := start(t, store)
	for _, name := range []string{"q", "r"} {
		b.do(func(tx *engine.Tx) error { return tx.CreateQueue(name, engine.QueueOptions{}) })
	}
	b.group("first", "q", 3)
	b.group("second", "r", 2)
	if all, _ := findings(t, store); len(all) != 0 {
		t.Fatalf("a sound store: %q", all)
	}
	sound := countsOf(t, store)
	if len(sound) != 4 { // of each group, one for the queue and one for its dead-letter queue
		t.Fatalf("the counts are %+v", sound)
	}
	var harm storage.Batch
	prefix := storage.AppendStateKey(nil, storage.StateGroupCount)
	it := store.Scan(storage.State, prefix, storage.After(prefix))
	for n, ok := 0, it.Seek(prefix); ok; n, ok = n+1, it.Next() {
		var c storage.GroupCount
		if err := c.Decode(it.Value()); err != nil {
			t.Fatal(err)
		}
		switch n {
		case 0:
			c.Pending += 2
		case 1:
			c.Pending = 0
		case 2:
			harm.Delete(storage.State, it.Key())
			continue
		}
		harm.Put(storage.State, it.Key(), c.Append(nil))
	}
	it.Close()
	harm.Put(storage.State, storage.AppendGroupCountKey(nil, 99, 1), (&storage.GroupCount{Done: 1}).Append(nil))
	harm.Put(storage.State, storage.AppendGroupKey(nil, 98), (&storage.Group{Name: "alone"}).Append(nil))
	if err := store.Commit(&harm, true); err != nil {
		t.Fatal(err)
	}
	all, _ := findings(t, store)
	if len(all) != 5 {
		t.Errorf("%d findings: %s", len(all), strings.Join(all, "\n"))
	}
	if err := verify.Repair(store, false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if all, _ := findings(t, store); len(all) != 0 {
		t.Errorf("after the repair: %q", all)
	}
	sound[0].Cancelled = 2
	if got := countsOf(t, store); !slices.Equal(got, sound) {
		t.Errorf("after the repair: %+v, want %+v", got, sound)
	}
}
