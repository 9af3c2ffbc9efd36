package verify_test

import (
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/broker/verify"
	"github.com/faisca/fila/storage"
)

// publish binds queues to a topic and publishes n long messages.
func (b *broker) publish(n int, queues ...string) {
	b.t.Helper()
	for _, queue := range queues {
		b.do(func(tx *engine.Tx) error { return tx.CreateQueue(queue, engine.QueueOptions{}) })
		b.do(func(tx *engine.Tx) error { _, err := tx.Bind("t", engine.Binding{Queue: queue}); return err })
	}
	for range n {
		req := &engine.Publish{Topic: "t", Message: engine.Enqueue{Payload: []byte(strings.Repeat("x", 4096))}}
		if err := b.PreparePublish(req); err != nil {
			b.t.Fatal(err)
		}
		b.do(func(tx *engine.Tx) error { _, err := tx.Publish(req); return err })
	}
}

// TestBodiesThatLackSomethingAreFoundAndRepaired: one body is gone, one names one of its messages
// only, one names none, one is alone, and one is only a name.
func TestBodiesThatLackSomethingAreFoundAndRepaired(t *testing.T) {
	store := storage.NewMemory()
	b := start(t, store)
	b.publish(4, "a", "b")
	all, before := findings(t, store)
	if len(all) != 0 || before[storage.Bodies] != 8 || before[storage.Messages] != 8 {
		t.Fatalf("a sound store: %q, %v", all, before)
	}
	var harm storage.Batch
	it := store.Scan(storage.Bodies, storage.HoldersPrefix(), nil)
	for n, ok := 0, it.Seek(nil); ok; n, ok = n+1, it.Next() {
		id, _, err := storage.ParseBodyKey(it.Key())
		var h storage.Holders
		if err != nil || h.Decode(it.Value()) != nil || len(h.Messages) != 2 {
			t.Fatalf("%v, %q", err, h.Messages)
		}
		switch n {
		case 0:
			harm.Delete(storage.Bodies, storage.AppendBodyKey(nil, id))
		case 1:
			h.Messages = h.Messages[:1]
			harm.Put(storage.Bodies, it.Key(), h.Append(nil))
		case 2:
			harm.Delete(storage.Bodies, it.Key())
		}
	}
	it.Close()
	harm.Put(storage.Bodies, storage.AppendBodyKey(nil, storage.ID{1}), (&storage.Message{Payload: []byte("alone")}).Append(nil))
	harm.Put(storage.Bodies, storage.AppendHoldersKey(nil, storage.ID{2}), (&storage.Holders{Messages: []string{"x"}}).Append(nil))
	if err := store.Commit(&harm, true); err != nil {
		t.Fatal(err)
	}
	all, _ = findings(t, store)
	text := strings.Join(all, "\n")
	for _, want := range []string{
		"refers to the body", "1 messages refer to the body", "2 messages refer to the body", "has no holders", "which does not exist",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not found in\n%s", want, text)
		}
	}
	if len(all) != 7 { // two messages and the holders of the first body
		t.Errorf("%d findings, want 7: %q", len(all), all)
	}
	if err := verify.Repair(store, true, func(string) {}); err != nil {
		t.Fatal(err)
	}
	all, after := findings(t, store)
	if len(all) != 0 || after[storage.Messages] != 6 || after[storage.Bodies] != 6 {
		t.Errorf("after the repair: %q, %v", all, after)
	}
	b = start(t, store)
	for _, queue := range []string{"a", "b"} {
		b.do(func(tx *engine.Tx) error {
			ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{queue}, Count: 10, Block: -1})
			for _, d := range ds {
				if _, lost := b.Load([]*engine.Delivery{d}); lost != nil || len(d.Payload()) != 4096 {
					t.Errorf("%s: a payload of %d bytes, %v", queue, len(d.Payload()), lost)
				}
				if _, err := tx.Ack(queue, []engine.Receipt{d.Receipt}); err != nil {
					return err
				}
			}
			if len(ds) != 3 {
				t.Errorf("%s has %d messages, want 3", queue, len(ds))
			}
			return err
		})
	}
	b.Advance(time.Second)
	if all, left := findings(t, store); len(all) != 0 || left[storage.Bodies] != 0 {
		t.Errorf("at the end: %q, %v", all, left)
	}
}
