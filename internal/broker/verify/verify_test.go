package verify_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/broker/verify"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

type call func(tx *engine.Tx) error

// Apply implements engine.Call.
func (c call) Apply(tx *engine.Tx) error { return c(tx) }

// broker is an engine on a store whose records a test changes between its starts.
type broker struct {
	*engine.Stepper
	t *testing.T
}

func start(t *testing.T, store engine.Store) *broker {
	t.Helper()
	s, err := engine.NewStepper(engine.DefaultConfig(), store, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return &broker{s, t}
}

func (b *broker) do(f func(tx *engine.Tx) error) {
	b.t.Helper()
	task := &engine.Task{Call: call(f), Client: engine.NewClient(1, func() {})}
	b.Do(task)
	if !task.Done() || task.Err() != nil {
		b.t.Fatalf("done %v, %v", task.Done(), task.Err())
	}
}

func (b *broker) budget(name string) (i engine.BudgetInfo, ok bool) {
	b.t.Helper()
	b.do(func(tx *engine.Tx) error { i, ok = tx.Budget(name); return nil })
	return i, ok
}

// spend moves a budget in each way: a credit under an id, a charge, a settlement and a lease that lives.
func (b *broker) spend(name string) {
	b.t.Helper()
	b.do(func(tx *engine.Tx) error { return tx.SetBudget(name, &engine.BudgetOptions{Detail: true}) })
	for _, move := range []engine.BudgetMove{{Name: name, Amount: 100, ID: "invoice-17", Note: "paid"}, {Name: name, Amount: 10, Charge: true}} {
		if err := b.PrepareMove(&move); err != nil {
			b.t.Fatal(err)
		}
		b.do(func(tx *engine.Tx) error { _, err := tx.MoveBudget(&move); return err })
	}
	for range 2 {
		req := &engine.Enqueue{Queue: "q", Key: name, Payload: []byte("x"), Meta: engine.Meta{Budgets: []string{name}}, Charge: new(int64(20))}
		if err := b.Prepare(req); err != nil {
			b.t.Fatal(err)
		}
		b.do(func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
	}
	b.do(func(tx *engine.Tx) error {
		ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 2, Block: -1})
		if err == nil {
			_, err = tx.Ack("q", []engine.Receipt{ds[0].Receipt})
		}
		return err
	})
	b.Advance(time.Second) // the record of the lease is written
}

func findings(t *testing.T, store verify.Source) (all []string, records map[storage.Family]int64) {
	t.Helper()
	is, err := verify.Records(store, func(f verify.Finding) { all = append(all, fmt.Sprint(f.Family, ": ", f.What)) }, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return all, is.Records
}

// TestBudgetsAndTheirLedgerAreVerifiedAndRepaired damages records of both families. What is dropped
// with a budget are its sums alone: its messages are held, and those of others go on.
func TestBudgetsAndTheirLedgerAreVerifiedAndRepaired(t *testing.T) {
	store := storage.NewMemory()
	b := start(t, store)
	b.do(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{NoDLQ: true}) })
	b.spend("acme")
	b.spend("other")
	all, records := findings(t, store)
	if len(all) != 0 || records[storage.Budgets] != 2 || records[storage.Ledger] != 8 || records[storage.Leases] != 2 {
		t.Fatalf("%q in %v", all, records)
	}
	before, _ := b.budget("other")

	var harm storage.Batch
	harm.Put(storage.Budgets, []byte("acme"), []byte{0xff})
	harm.Put(storage.Budgets, []byte("unnumbered"), (&storage.Budget{Credited: 5}).Append(nil))
	harm.Put(storage.Budgets, []byte("negative"), (&storage.Budget{Made: 7, Spent: -5}).Append(nil))
	harm.Put(storage.Ledger, []byte{1, 2, 3}, nil)
	entry := storage.AppendLedgerKey(nil, "other", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()+1)
	harm.Put(storage.Ledger, entry, []byte{0xff})
	if err := store.Commit(&harm, true); err != nil {
		t.Fatal(err)
	}
	if all, _ = findings(t, store); len(all) != 5 {
		t.Errorf("%d findings, want 5: %q", len(all), all)
	}
	if _, err := engine.NewStepper(engine.DefaultConfig(), store, time.Now()); err == nil || !strings.Contains(err.Error(), "budget") {
		t.Errorf("a start with a damaged budget: %v", err)
	}
	var log []string
	if err := verify.Repair(store, true, func(what string) { log = append(log, what) }); err != nil || len(log) != 5 {
		t.Errorf("%v: %q", err, log)
	}
	all, left := findings(t, store)
	if len(all) != 0 {
		t.Errorf("after the repair: %q", all)
	}
	if left[storage.Budgets] != 1 || left[storage.Leases] != 2 || left[storage.Messages] != records[storage.Messages] {
		t.Errorf("%v are left of %v", left, records)
	}
	b = start(t, store)
	if after, ok := b.budget("other"); !ok || after != before || after.Reserved != 20 || after.Spent != 30 {
		t.Errorf("%+v, want %+v", after, before)
	}
	if _, ok := b.budget("acme"); ok {
		t.Error("a budget without a record is there")
	}
	if err := b.Check(); err != nil {
		t.Error(err)
	}
}

// TestABindingNeedsItsQueue: a topic that is bound to a queue which is gone, or a binding that
// cannot be read, is found and dropped; the other bindings stay.
func TestABindingNeedsItsQueue(t *testing.T) {
	store := storage.NewMemory()
	b := start(t, store)
	b.do(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{NoDLQ: true}) })
	b.do(func(tx *engine.Tx) error { _, err := tx.Bind("t", engine.Binding{Queue: "q"}); return err })
	if all, _ := findings(t, store); len(all) != 0 {
		t.Fatalf("%q", all)
	}
	var harm storage.Batch
	harm.Put(storage.State, storage.AppendStateKey(nil, "topic", "t", "gone"), new(storage.Binding).Append(nil))
	harm.Put(storage.State, storage.AppendStateKey(nil, "topic", "u", "q"), []byte{0xff})
	if err := store.Commit(&harm, true); err != nil {
		t.Fatal(err)
	}
	if all, _ := findings(t, store); len(all) != 2 || !strings.Contains(strings.Join(all, " "), `topic "t" is bound to queue "gone"`) {
		t.Errorf("%q", all)
	}
	if err := verify.Repair(store, true, func(string) {}); err != nil {
		t.Error(err)
	}
	if all, _ := findings(t, store); len(all) != 0 {
		t.Errorf("after the repair: %q", all)
	}
	b = start(t, store)
	b.do(func(tx *engine.Tx) error {
		_, list := tx.Topics(0, 10, func(string) bool { return true })
		if len(list) != 1 || len(list[0].Bindings) != 1 || list[0].Bindings[0].Queue != "q" {
			t.Errorf("after the repair: %v", list)
		}
		return nil
	})
}

// acked enqueues and acks a message with a result, and returns its id.
func (b *broker) acked(queue, value string) (id engine.ID) {
	b.t.Helper()
	req := &engine.Enqueue{Queue: queue, Payload: []byte("x")}
	if err := b.Prepare(req); err != nil {
		b.t.Fatal(err)
	}
	b.do(func(tx *engine.Tx) (err error) { id, err = tx.Enqueue(req); return err })
	b.do(func(tx *engine.Tx) error {
		ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{queue}, Count: 1, Block: -1})
		if err == nil {
			_, err = tx.AckWith(queue, []engine.Receipt{ds[0].Receipt}, engine.AckOptions{Result: []byte(value)})
		}
		return err
	})
	return id
}

// TestARecordOfAnEndIsOfNoMessage: a message that is there is not done. Its record is dropped, and the message stays.
func TestARecordOfAnEndIsOfNoMessage(t *testing.T) {
	store := storage.NewMemory()
	b := start(t, store)
	b.do(func(tx *engine.Tx) error {
		return tx.CreateQueue("q", engine.QueueOptions{Given: queueset.Given{queueset.KeepDone: 60_000}})
	})
	b.acked("q", "v-1")
	req := &engine.Enqueue{Queue: "q", Key: "k", Payload: []byte("x")}
	if err := b.Prepare(req); err != nil {
		t.Fatal(err)
	}
	var there engine.ID
	b.do(func(tx *engine.Tx) (err error) { there, err = tx.Enqueue(req); return err })
	if all, records := findings(t, store); len(all) != 0 || records[storage.Results] != 1 {
		t.Fatalf("of a sound store: %q in %v", all, records)
	}
	it := store.Scan(storage.Messages, nil, nil)
	it.Next()
	mk, err := storage.ParseMessageKey(it.Key())
	it.Close()
	if err != nil {
		t.Fatal(err)
	}
	var harm storage.Batch
	harm.Put(storage.Results, storage.AppendResultKey(nil, mk.Queue, 1, there), (&storage.Result{NoValue: true, At: 1, Attempts: 1, Key: "k"}).Append(nil))
	harm.Put(storage.Results, storage.AppendResultKey(nil, mk.Queue, 2, there), (&storage.Result{NoValue: true, At: 1, Attempts: 1, Key: "another"}).Append(nil))
	if err := store.Commit(&harm, true); err != nil {
		t.Fatal(err)
	}
	if all, _ := findings(t, store); len(all) != 2 || !strings.Contains(strings.Join(all, " "), "is done, and it is still there") || !strings.Contains(strings.Join(all, " "), "does not belong to its key") {
		t.Errorf("%q", all)
	}
	if err := verify.Repair(store, true, func(string) {}); err != nil {
		t.Error(err)
	}
	if all, records := findings(t, store); len(all) != 0 || records[storage.Results] != 1 || records[storage.Messages] != 1 {
		t.Errorf("after the repair: %q in %v", all, records)
	}
}

// TestAResultNeedsItsQueue: a result of a queue that is gone, or one that cannot be read, is found
// and dropped; the others stay known.
func TestAResultNeedsItsQueue(t *testing.T) {
	store := storage.NewMemory()
	b := start(t, store)
	b.do(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
	id := b.acked("q", "v-1")
	all, records := findings(t, store)
	if len(all) != 0 || records[storage.Results] != 1 {
		t.Fatalf("%q in %v", all, records)
	}
	var harm storage.Batch
	harm.Put(storage.Results, storage.AppendResultKey(nil, 99, 1, storage.ID(id)), (&storage.Result{Value: []byte("v-2"), At: 1}).Append(nil))
	harm.Put(storage.Results, storage.AppendResultKey(nil, 1, 1, storage.ID{1}), []byte{0xff})
	harm.Put(storage.Results, []byte("short"), nil)
	if err := store.Commit(&harm, true); err != nil {
		t.Fatal(err)
	}
	if all, _ = findings(t, store); len(all) != 3 || !strings.Contains(strings.Join(all, " "), "a result of the queue with the number 99, which does not exist") {
		t.Errorf("%q", all)
	}
	if err := verify.Repair(store, true, func(string) {}); err != nil {
		t.Error(err)
	}
	if all, records = findings(t, store); len(all) != 0 || records[storage.Results] != 1 {
		t.Errorf("after the repair: %q in %v", all, records)
	}
	b = start(t, store)
	req := &engine.ResultRequest{Queue: "q", ID: id, Block: -1}
	b.do(func(tx *engine.Tx) error { return tx.Result(req) })
	if r := req.Result; r.Status != engine.ResultDone || string(r.Value) != "v-1" {
		t.Errorf("after the repair: %+v", r)
	}
}

func TestTheStoreOfANodeIsVerified(t *testing.T) {
	node := func(change func(b *storage.Batch)) *storage.Memory {
		store := storage.NewMemory()
		var b storage.Batch
		b.Put(storage.State, storage.ReplicaKey(), (&storage.Replica{Cluster: "c", Index: 9, Term: 2, Number: 1}).Append(nil))
		b.Put(storage.State, storage.AppendStateKey(nil, "now"), make([]byte, 8))
		storage.PutReplicaFormat(&b, storage.ReplicaFormatVersion)
		if change != nil {
			change(&b)
		}
		if err := store.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
		return store
	}
	for name, x := range map[string]struct {
		store *storage.Memory
		finds string
	}{
		"sound":                     {node(nil), ""},
		"with a learner":            {node(func(b *storage.Batch) { storage.PutLearner(b, "c", true) }), ""},
		"with a learner in parts":   {node(func(b *storage.Batch) { b.Put(storage.State, append(storage.LearnerKey("c"), 0, 1, 'd'), nil) }), "the key of a learner"},
		"without its position":      {node(func(b *storage.Batch) { b.Delete(storage.State, storage.ReplicaKey()) }), "has no position in the replicated log"},
		"with the format of others": {node(storage.PutFormat), "is not that of a node"},
		"with a damaged position":   {node(func(b *storage.Batch) { b.Put(storage.State, storage.ReplicaKey(), []byte{0x12}) }), "replica record"},
		"with a damaged time":       {node(func(b *storage.Batch) { b.Put(storage.State, storage.AppendStateKey(nil, "now"), []byte{1}) }), "a number of 1 bytes"},
	} {
		var found []string
		if _, err := verify.Records(x.store, func(f verify.Finding) { found = append(found, f.What) }, func() {}); err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(found, "; "); (len(found) > 0) != (x.finds != "") || !strings.Contains(all, x.finds) {
			t.Errorf("%s: found %q, want %q", name, all, x.finds)
		}
	}
}
