package verify_test

import (
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/broker/verify"
	"github.com/faisca/fila/storage"
)

// TestUniqueIDsAndTheirMessagesAreVerifiedAndRepaired damages both sides. No message is dropped for
// its id, and a message that has lost the entry of its id gets it back.
func TestUniqueIDsAndTheirMessagesAreVerifiedAndRepaired(t *testing.T) {
	store := storage.NewMemory()
	b := start(t, store)
	b.do(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
	send := func(unique string) (id engine.ID) {
		t.Helper()
		req := &engine.Enqueue{Queue: "q", Key: "k", Meta: engine.Meta{Unique: unique}, Payload: []byte("x")}
		if err := b.Prepare(req); err != nil {
			t.Fatal(err)
		}
		b.do(func(tx *engine.Tx) (err error) { id, err = tx.Enqueue(req); return err })
		return id
	}
	lost, twice, leased := send("lost"), send("twice"), send("leased")
	if all, records := findings(t, store); len(all) != 0 || records[storage.Dedup] != 3 {
		t.Fatalf("of a sound store: %q, %v", all, records)
	}
	var harm storage.Batch
	it := store.Scan(storage.Dedup, nil, nil)
	for ok := it.Seek(nil); ok; ok = it.Next() {
		no, _, id, _ := storage.ParseDedupKey(it.Key())
		if id == "lost" {
			harm.Delete(storage.Dedup, it.Key())
			harm.Put(storage.Dedup, storage.AppendDedupKey(nil, no, storage.UniqueGeneration, "nobody"), it.Value())
			gone := storage.DedupEntry{ID: storage.ID{1}, Key: "k"}
			harm.Put(storage.Dedup, storage.AppendDedupKey(nil, no, storage.UniqueGeneration, "gone"), gone.Append(nil))
		}
	}
	it.Close()
	it = store.Scan(storage.Messages, nil, nil)
	for ok := it.Seek(nil); ok; ok = it.Next() {
		mk, _ := storage.ParseMessageKey(it.Key())
		var m storage.Message
		if err := m.Decode(it.Value()); err != nil {
			t.Fatal(err)
		}
		if mk.ID == twice {
			second := mk
			second.ID[15]++
			harm.Put(storage.Messages, second.Append(nil), it.Value())
		}
		if mk.ID == leased {
			harm.Put(storage.Leases, storage.AppendLeaseKey(nil, mk, 7), (&storage.Lease{Until: 1, Meta: storage.Meta{Unique: "another"}}).Append(nil))
		}
	}
	it.Close()
	if err := store.Commit(&harm, true); err != nil {
		t.Fatal(err)
	}
	all, before := findings(t, store)
	text := strings.Join(all, "\n")
	for _, want := range []string{
		`has the unique id "lost", which is not taken by it`, `which has the unique id "lost"`, `which does not exist`,
		`has the unique id "twice", which message`, `that of the message is "leased"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not found in\n%s", want, text)
		}
	}
	if len(all) != 5 {
		t.Errorf("%d findings, want 5: %q", len(all), all)
	}
	var log []string
	if err := verify.Repair(store, true, func(what string) { log = append(log, what) }); err != nil || len(log) != 5 {
		t.Errorf("%v: %q", err, log)
	}
	all, after := findings(t, store)
	if len(all) != 0 || after[storage.Messages] != before[storage.Messages] || after[storage.Dedup] != 3 || after[storage.Leases] != 0 {
		t.Errorf("after the repair: %q, %v", all, after)
	}
	b = start(t, store)
	if send("lost") != lost || send("twice") != twice || send("leased") != leased {
		t.Error("an id is of another message after the repair")
	}
}

// An id until the lease is that of its message until a record says that it was leased. A replaced message,
// and one whose id was taken by repair, are removed by deletes, which the store verifies.
func TestIDsUntilTheLeaseAndReplacementsAreVerifiedAndRepaired(t *testing.T) {
	store := storage.NewMemory()
	b := start(t, store)
	b.do(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
	send := func(key, unique string, delay time.Duration) (id engine.ID) {
		t.Helper()
		req := &engine.Enqueue{Queue: "q", Key: key, Meta: engine.Meta{Unique: unique, UntilLease: true}, Payload: []byte("x"), Replace: true, Delay: delay}
		if err := b.Prepare(req); err != nil {
			t.Fatal(err)
		}
		b.do(func(tx *engine.Tx) (err error) { id, err = tx.Enqueue(req); return err })
		return id
	}
	lease := func() (r engine.Receipt) {
		t.Helper()
		b.do(func(tx *engine.Tx) error {
			ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1})
			if err == nil {
				r = ds[0].Receipt
			}
			return err
		})
		return r
	}
	send("k", "leased", 0)
	lease()
	second := send("k", "leased", time.Hour) // the lease of the first is written with this one
	send("l", "retried", 0)
	b.do(func(tx *engine.Tx) error { _, err := tx.Release("q", []engine.Receipt{lease()}); return err })
	send("m", "retried", time.Hour)
	third := send("m", "retried", time.Hour)
	if all, records := findings(t, store); len(all) != 0 || records[storage.Dedup] != 2 || records[storage.Messages] != 4 {
		t.Fatalf("of a sound store: %q, %v", all, records)
	}
	var harm storage.Batch
	it := store.Scan(storage.Dedup, nil, nil)
	for ok := it.Seek(nil); ok; ok = it.Next() {
		harm.Delete(storage.Dedup, it.Key())
	}
	it.Close()
	if err := store.Commit(&harm, true); err != nil {
		t.Fatal(err)
	}
	if err := verify.Repair(store, true, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if all, records := findings(t, store); len(all) != 0 || records[storage.Dedup] != 2 || records[storage.Messages] != 4 {
		t.Errorf("after the repair: %q, %v", all, records)
	}
	b = start(t, store)
	if send("k", "leased", time.Hour) != second || send("m", "retried", time.Hour) != third {
		t.Error("an id is of another message after the repair")
	}
	req := &engine.Cancel{Queue: "q", IDs: []engine.ID{second, third}}
	b.do(func(tx *engine.Tx) error { _, err := tx.Cancel(req); return err })
	if all, records := findings(t, store); len(all) != 0 || records[storage.Dedup] != 0 || records[storage.Messages] != 2 {
		t.Errorf("at the end: %q, %v", all, records)
	}
}
