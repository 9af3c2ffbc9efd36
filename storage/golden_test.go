package storage_test

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// update is set to rewrite the golden files. What changes there changes the
// format: say in the commit why no store that exists is misread.
var update = flag.Bool("update", false, "rewrite testdata/golden")

func goldenID(tb testing.TB) storage.ID {
	tb.Helper()
	id, err := storage.ParseID("018f5e8a-7c00-7abc-8def-0123456789ab")
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

func goldenKey(tb testing.TB) storage.MessageKey {
	tb.Helper()
	return storage.MessageKey{Queue: 42, Key: "acme", Rank: 4, ID: goldenID(tb)}
}

func fullMessage() *storage.Message {
	return &storage.Message{
		Payload: []byte("hello"),
		Headers: []storage.Header{{Name: []byte("trace"), Value: []byte("abc")}, {Name: []byte("empty")}, {}},
		Meta:    storage.Meta{Throttles: []string{"api", "", "tenant:acme"}, Weight: 3, Cost: 2, ExpiresAt: 1_700_000_060_000_000_000, Budgets: []string{"acme", "everyone"}, Charge: 800, Unique: "reindex-1", Body: storage.ID{1, 15: 2}, Retries: &queueset.Retries{MaxAttempts: queueset.Some(0), Backoff: queueset.Some(1500), MaxBackoff: queueset.Some(60_000)}, UntilLease: true, Rewritten: true, MemberOf: 1<<32 + 7, Died: true}, ReadyAt: 1_700_000_000_000_000_000,
		Dead: &storage.Dead{
			Queue: "orders", Reason: "attempts", Error: "timeout", Cause: "provider down", DiedAt: 1_700_000_030_000_000_000,
			Attempts: 5, Deliveries: 7, FirstFailedAt: 1_700_000_010_000_000_000, LastFailedAt: 1_700_000_029_000_000_000,
		},
	}
}

func fullAttempt() *storage.Attempt {
	return &storage.Attempt{
		Attempt: 2, Deliveries: 3, ReadyAt: 1_700_000_000_000_000_000, Error: "boom", Cause: "provider down",
		FirstFailedAt: 1_699_999_990_000_000_000, LastFailedAt: 1_699_999_999_000_000_000, Fence: 1 << 40, FirstLeasedAt: 1_699_999_980_000_000_000, Freed: true,
		Failures: []storage.Failure{*fullFailure()},
	}
}

func fullFailure() *storage.Failure {
	return &storage.Failure{
		Attempt: 1, Consumer: "worker-1", LeasedAt: 1_699_999_980_000_000_000, At: 1_699_999_990_000_000_000, Expired: true, Error: "the lease expired",
	}
}

func fullLease() *storage.Lease {
	return &storage.Lease{
		Until: 1_700_000_030_000_000_000, Consumer: "worker-1", Attempt: 2, Deliveries: 3, Meta: storage.Meta{Throttles: []string{"api"}, Cost: 4, ExpiresAt: 1_700_000_060_000_000_000, Budgets: []string{"acme"}, Charge: 800, Unique: "reindex-1", Body: storage.ID{1, 15: 2}, Retries: &queueset.Retries{MaxAttempts: queueset.Some(0), Backoff: queueset.Some(1500), MaxBackoff: queueset.Some(60_000)}, UntilLease: true, Rewritten: true, MemberOf: 1<<32 + 7, Died: true}, LeasedAt: 1_700_000_000_000_000_000,
		FirstFailedAt: 1_699_999_990_000_000_000, LastFailedAt: 1_699_999_999_000_000_000, Error: "boom", Cause: "provider down", Retried: true, Retrying: true,
		FirstLeasedAt: 1_699_999_980_000_000_000,
		Failures:      []storage.Failure{*fullFailure()},
	}
}

func fullDone() *storage.Result {
	return &storage.Result{
		NoValue: true, At: 1_700_000_000_000_000_000, Key: "acme", FirstLeasedAt: 1_699_999_980_000_000_000, Attempts: 2, Deliveries: 3,
		Consumer: "worker-1", Headers: []storage.Header{{Name: []byte("trace"), Value: []byte("42")}},
	}
}

func fullQueue() *storage.Queue {
	return &storage.Queue{
		Number: 42, DLQ: "orders.dead", DeadLetter: true,
		Values: queueset.Values{
			queueset.Visibility: 30_000, queueset.Backoff: 1_000, queueset.MaxBackoff: 60_000, queueset.BackoffJitter: 20,
			queueset.TTL: 86_400_000, queueset.DedupWindow: 5_000, queueset.MaxAttempts: 5, queueset.MaxDepth: 1_000_000, queueset.KeyMaxDepth: 1_000,
			queueset.LuaTimeout: 20, queueset.LuaMemory: 2 << 20, queueset.BreakerErrors: 5, queueset.Signals: 1, queueset.Ordered: 1, queueset.ResultTTL: 60_000, queueset.KeepDone: 70_000,
			queueset.Batch: 20, queueset.BatchWait: 5_000,
		},
		PausedIn: true, PausedOut: true, CreatedAt: 1_700_000_000_000_000_000, OnEnqueue: "return msg", OnFailure: "return nil",
	}
}

func fullCron() *storage.Cron {
	return &storage.Cron{
		Queue: "reports", Expression: "30 6 * * mon-fri", Zone: "Europe/Berlin", CatchUp: 2, Key: "acme", Priority: 10,
		DelayMs: 60_000, TTLMs: 3_600_000, NextAt: 1_700_000_060_000_000_000, LastAt: 1_700_000_000_000_000_000, Fired: 300, Missed: 2,
		LastError: "the queue is full", ErrorAt: 1_699_999_940_000_000_000, MadeUp: 7, SetAt: 1_690_000_000_000_000_000,
		Meta: storage.Meta{Budgets: []string{"acme"}, Unique: "reindex", Retries: &queueset.Retries{MaxAttempts: queueset.Some(0), Backoff: queueset.Some(1500), MaxBackoff: queueset.Some(60_000)}, UntilLease: true}, Charge: 801, Topic: true, Skipped: 3, PausedAt: 1_700_000_030_000_000_000, Replace: 1001,
	}
}

func fullBudget() *storage.Budget {
	return &storage.Budget{
		Made: 1<<40 + 1, CreatedAt: 1_690_000_000_000_000_000, Credited: 1_000, Spent: 150, Debt: 50, Low: 201,
		Refill: 100_000, RefillMax: 300_000, Expression: "@monthly", Zone: "Europe/Berlin",
		NextAt: 1_701_385_200_000_000_000, LastAt: 1_700_000_000_000_000_000,
		UseAt: 1_700_000_000_000_000_001, UseAmount: 30, UseCount: 2, Refuse: true, Detail: true,
	}
}

func fullGroup() *storage.Group {
	return &storage.Group{
		Name: "import-7", WhenDone: true, OpenedAt: 1_700_000_000_000_000_000, ExpireAt: 1_700_000_060_000_000_000, SealedAt: 1_700_000_001_000_000_000,
		CancelledAt: 1_700_000_002_000_000_000, Error: "it has expired", Outer: 1<<32 + 7, Queue: "reports",
	}
}

func fullGroupMessage() *storage.GroupMessage {
	return &storage.GroupMessage{
		Queue: "reports", Key: "acme", Priority: 10, Delay: 1_000_000_000, At: 1_700_000_060_000_000_000, TTL: 60_000_000_000,
		Message: (&storage.Message{Payload: []byte("hello")}).Append(nil),
	}
}

func fullGroupCount() *storage.GroupCount {
	return &storage.GroupCount{Pending: 1, Buried: 2, Done: 300, Dead: 4, Cancelled: 5}
}

func fullGroupEnd() *storage.GroupEnd {
	return &storage.GroupEnd{
		Number: 1<<32 + 7, Cancelled: true, Done: 300, Dead: 6, CancelledNumber: 5, Message: storage.ID{1, 15: 2}, Error: "it has expired",
		OpenedAt: 1_700_000_000_000_000_000, SealedAt: 1_700_000_001_000_000_000, EndedAt: 1_700_000_002_000_000_000, Queue: "reports",
	}
}

func fullLedgerEntry() *storage.LedgerEntry {
	return &storage.LedgerEntry{
		Made: 1<<40 + 1, Kind: 2, Amount: -150, Balance: 850, ID: "invoice-17", Note: "a page",
		Count: 1, Queue: "llm", Message: "0123456789abcdef", Key: "acme",
	}
}

func fullScript() *storage.Script {
	return &storage.Script{
		Source: "function on_failure(msg) return { action = 'dlq' } end", Version: "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3",
		LoadedAt: 1_700_000_000_000_000_000, User: "anna",
	}
}

func fullAct() *storage.Act {
	return &storage.Act{
		At: 1_700_000_000_000_000_000, User: "anna", Addr: "192.0.2.7:50123", Command: "FILA.QUEUE ALTER", Object: "orders",
		Before: "max_attempts=5", After: "max_attempts=3",
	}
}

func fullHistory() *storage.History {
	return &storage.History{
		Width: 3, Begun: 170_000_000,
		Minutes: []uint32{28_333_333, 7, 0, 28_333_334, 1<<32 - 1, 5, 28_333_390, 3, 5},
		Tens:    []uint32{2_833_333, 7, 0},
	}
}

func fullReplica() *storage.Replica {
	return &storage.Replica{Cluster: "0f8fad5b-d9cb-469f-a165-70867728950e", Index: 1 << 33, Term: 7, Number: 300}
}

func fullSignal() *storage.Signal {
	return &storage.Signal{
		At: 1_700_000_000_000_000_000, All: -12.5,
		Windows: [storage.SignalWindows]storage.SignalWindow{{60_000, 1.25}, {300_000, 2.5}, {3_600_000, 1e300}, {86_400_000, -1e-300}},
	}
}

func goldenBatch() *storage.Batch {
	var b storage.Batch
	storage.PutFormat(&b)
	b.Put(storage.Messages, []byte("key"), make([]byte, 200))
	b.Delete(storage.Attempts, []byte("key"))
	b.SingleDelete(storage.Leases, nil)
	b.DeleteRange(storage.Scheduled, []byte("a"), []byte("b"))
	return &b
}

func fullBinding() *storage.Binding {
	return &storage.Binding{Headers: []storage.Header{{Name: []byte("country"), Value: []byte("d?")}, {Name: []byte("kind"), Value: []byte("order.*")}}}
}

func TestFormatIsWhatTheGoldenFilesSay(t *testing.T) {
	mk := goldenKey(t)
	for name, got := range map[string][]byte{
		"key_queue":            storage.AppendQueuePrefix(nil, 42),
		"key_prefix":           storage.AppendKeyPrefix(nil, 42, "acme"),
		"key_message":          mk.Append(nil),
		"key_lease":            storage.AppendLeaseKey(nil, mk, 7),
		"key_scheduled":        storage.AppendScheduledKey(nil, 1_700_000_000_000_000_000, mk),
		"key_state":            storage.AppendStateKey(nil, "throttle", "api", ""),
		"record_message":       fullMessage().Append(nil),
		"record_message_small": (&storage.Message{Payload: []byte("hello")}).Append(nil),
		"record_attempt":       fullAttempt().Append(nil),
		"record_lease":         fullLease().Append(nil),
		"record_queue":         fullQueue().Append(nil),
		"record_key":           (&storage.Key{Weight: 7, Paused: true, Pinned: true, MaxDepth: 500}).Append(nil),
		"record_throttle":      (&storage.Throttle{Rate: 2.5, Burst: 10, Concurrency: 3, ByCost: true, AdaptiveMin: 2}).Append(nil),
		"record_binding":       fullBinding().Append(nil),
		"record_cron":          fullCron().Append(nil),
		"record_script":        fullScript().Append(nil),
		"record_act":           fullAct().Append(nil),
		"key_dedup":            storage.AppendDedupKey(nil, 42, 1_700_000_000_000_000_000, "\x00order-1"),
		"record_dedup":         (&storage.DedupEntry{ID: goldenID(t), At: 1_700_000_000_000_000_000}).Append(nil),
		"key_unique":           storage.AppendDedupKey(nil, 42, storage.UniqueGeneration, "reindex-1"),
		"record_unique":        (&storage.DedupEntry{ID: goldenID(t), At: 1_700_000_000_000_000_000, Key: "acme"}).Append(nil),
		"key_result":           storage.AppendResultKey(nil, 42, 1_700_000_000_000_000_000, goldenID(t)),
		"record_result":        (&storage.Result{Value: []byte("report.pdf"), At: 1_700_000_000_000_000_000}).Append(nil),
		"record_done":          fullDone().Append(nil),
		"key_ledger":           storage.AppendLedgerKey(nil, "acme", 1_700_000_000_000_000_000),
		"key_ledger_id":        storage.AppendLedgerIDKey(nil, 19_675, "acme", "invoice-17"),
		"record_budget":        fullBudget().Append(nil),
		"key_signal":           storage.AppendSignalKey(nil, "acme", "failed"),
		"record_signal":        fullSignal().Append(nil),
		"record_ledger":        fullLedgerEntry().Append(nil),
		"key_body":             storage.AppendBodyKey(nil, goldenID(t)),
		"key_holders":          storage.AppendHoldersKey(nil, goldenID(t)),
		"record_holders":       (&storage.Holders{Messages: []string{string(mk.Append(nil))}}).Append(nil),
		"record_with_body":     storage.WithBody((&storage.Message{Payload: []byte("hello"), Meta: storage.Meta{Weight: 7}}).Append(nil), goldenID(t)),
		"key_group":            storage.AppendGroupKey(nil, 1<<32+7),
		"key_group_message":    storage.AppendGroupMessageKey(nil, 1<<32+7),
		"key_group_count":      storage.AppendGroupCountKey(nil, 1<<32+7, 42),
		"key_group_end":        storage.AppendGroupEndKey(nil, 1_700_000_000_000_000_000, "import-7"),
		"record_group":         fullGroup().Append(nil),
		"record_group_message": fullGroupMessage().Append(nil),
		"record_group_count":   fullGroupCount().Append(nil),
		"record_group_end":     fullGroupEnd().Append(nil),
		"key_history":          storage.AppendHistoryKey(nil, "orders"),
		"key_history_key":      storage.AppendKeyHistoryKey(nil, "orders", "acme"),
		"record_history":       fullHistory().Append(nil),
		"key_replica":          storage.ReplicaKey(),
		"record_replica":       fullReplica().Append(nil),
		"key_user":             storage.UserKey("worker"),
		"key_users_version":    storage.UsersVersionKey(),
		"key_learner":          storage.LearnerKey("c"),
		"batch":                goldenBatch().Bytes(),
	} {
		path := filepath.Join("testdata", "golden", name+".hex")
		if *update {
			if err := os.WriteFile(path, []byte(hexLines(got)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if g := hexLines(got); g != string(want) {
			t.Errorf("%s: the format changed\n got:\n%s want:\n%s", name, g, want)
		}
	}
}

func TestTheExampleInTheFormatDocumentIsRight(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	k := hex.EncodeToString(goldenKey(t).Append(nil))
	line := strings.Join([]string{k[:8], k[8:12], k[12:20], k[20:22], k[22:]}, " ")
	if !strings.Contains(string(doc), "//\t"+line+"\n") {
		t.Errorf("doc.go does not show the message key as\n%s", line)
	}
}

// hexLines writes 32 bytes a line, so that a change shows where it is.
func hexLines(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		n := min(len(b), 32)
		s.WriteString(hex.EncodeToString(b[:n]))
		s.WriteByte('\n')
		b = b[n:]
	}
	return s.String()
}
