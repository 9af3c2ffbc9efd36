package verify_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/broker/verify"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// TestTheOrderOfKeysIsVerifiedAndRepaired: in an ordered queue, a key has one lease and no message
// has a due time.
func TestTheOrderOfKeysIsVerifiedAndRepaired(t *testing.T) {
	store := storage.NewMemory()
	b := start(t, store)
	var ids []engine.ID
	b.do(func(tx *engine.Tx) error {
		return tx.CreateQueue("o", engine.QueueOptions{Given: queueset.Given{queueset.Ordered: 1}})
	})
	for range 2 {
		req := &engine.Enqueue{Queue: "o", Key: "k", Payload: []byte("x")}
		if err := b.Prepare(req); err != nil {
			t.Fatal(err)
		}
		b.do(func(tx *engine.Tx) error { id, err := tx.Enqueue(req); ids = append(ids, id); return err })
	}
	var ds []*engine.Delivery
	b.do(func(tx *engine.Tx) (err error) {
		ds, err = tx.Lease(&engine.LeaseRequest{Queues: []string{"o"}, Count: 2, Block: -1})
		return err
	})
	b.do(func(tx *engine.Tx) error {
		_, err := tx.Nack(&engine.Nack{Queue: "o", Receipt: ds[0].Receipt, Delay: time.Hour})
		return err
	})
	if all, records := findings(t, store); len(all) != 0 || records[storage.Leases] != 1 || records[storage.Scheduled] != 0 {
		t.Fatalf("of a sound store: %q, %v", all, records)
	}
	it := store.Scan(storage.Messages, nil, nil)
	var broken storage.Batch
	for ok := it.Seek(nil); ok; ok = it.Next() {
		if mk, err := storage.ParseMessageKey(it.Key()); err == nil && mk.ID == ids[1] {
			broken.Put(storage.Leases, storage.AppendLeaseKey(nil, mk, 7), (&storage.Lease{Until: 1}).Append(nil))
			broken.Put(storage.Scheduled, storage.AppendScheduledKey(nil, 1, mk), nil)
		}
	}
	it.Close()
	if err := store.Commit(&broken, true); err != nil {
		t.Fatal(err)
	}
	all, _ := findings(t, store)
	text := strings.Join(all, "\n")
	if len(all) != 2 || !strings.Contains(text, "of its key in an ordered queue") || !strings.Contains(text, "which is in an ordered queue") {
		t.Fatalf("found %q", all)
	}
	var log []string
	if err := verify.Repair(store, true, func(what string) { log = append(log, what) }); err != nil || len(log) < 2 {
		t.Fatalf("repaired %q: %v", log, err)
	}
	if all, _ := findings(t, store); len(all) != 0 || !slices.ContainsFunc(log, func(s string) bool { return strings.Contains(s, "lease") }) {
		t.Errorf("after the repair: %q, %q", all, log)
	}
}
