package storage_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/faisca/fila/storage"
)

// seed gives a fuzz test what is right, cut short in every place, and nothing.
func seed(f *testing.F, good ...[]byte) {
	f.Helper()
	f.Add([]byte(nil))
	for _, b := range good {
		for n := 1; n <= len(b); n++ {
			f.Add(b[:n])
		}
	}
}

func FuzzParseBatch(f *testing.F) {
	var empty storage.Batch
	seed(f, goldenBatch().Bytes(), empty.Bytes())
	f.Fuzz(func(t *testing.T, rep []byte) {
		b, err := storage.ParseBatch(rep)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if !bytes.Equal(b.Bytes(), rep) || b.Size() != len(rep) {
			t.Fatalf("%x became %x", rep, b.Bytes())
		}
		var again storage.Batch
		if err := b.Each(func(r storage.Record) error { replay(&again, r); return nil }); err != nil {
			t.Fatalf("a batch that was accepted cannot be walked: %v", err)
		}
		if again.Len() != b.Len() {
			t.Fatalf("%d records became %d", b.Len(), again.Len())
		}
		// Lengths may be spelled longer than need be, so the first copy may differ; the second may not.
		twice, err := storage.ParseBatch(again.Bytes())
		if err != nil || !reflect.DeepEqual(records(t, twice), records(t, b)) {
			t.Fatalf("records changed: %v", err)
		}
	})
}

func replay(b *storage.Batch, r storage.Record) {
	switch r.Op {
	case storage.OpPut:
		b.Put(r.Family, r.Key, r.Value)
	case storage.OpDelete:
		b.Delete(r.Family, r.Key)
	case storage.OpSingleDelete:
		b.SingleDelete(r.Family, r.Key)
	case storage.OpDeleteRange:
		b.DeleteRange(r.Family, r.Key, r.Value)
	}
}

func records(tb testing.TB, b *storage.Batch) (rs []storage.Record) {
	tb.Helper()
	if err := b.Each(func(r storage.Record) error { rs = append(rs, r); return nil }); err != nil {
		tb.Fatal(err)
	}
	return rs
}

type record interface {
	Append(dst []byte) []byte
	Decode(b []byte) error
}

// fuzzRecord holds a decoder to three things: it does not panic, it refuses
// only with ErrCorrupt, and what it understood it understands again.
func fuzzRecord[T any, P interface {
	*T
	record
}](f *testing.F, full P) {
	f.Helper()
	seed(f, full.Append(nil))
	f.Add([]byte{0x7b, 0x7b, 0x7b, 0x7b})             // groups within groups
	f.Add(append(full.Append(nil), 0xf8, 0x3f, 0x01)) // a field that is not known
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, second, zero T
		if err := P(&first).Decode(b); err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("refused with %v", err)
			}
			if !reflect.DeepEqual(first, zero) {
				t.Fatalf("refused, but left %+v", first)
			}
			return
		}
		enc := P(&first).Append(nil)
		if err := P(&second).Decode(enc); err != nil {
			t.Fatalf("%x became %x, which is refused: %v", b, enc, err)
		}
		if again := P(&second).Append(nil); !bytes.Equal(again, enc) {
			t.Fatalf("%+v became %+v", first, second)
		}
	})
}

func FuzzMessage(f *testing.F) { fuzzRecord(f, fullMessage()) }
func FuzzAttempt(f *testing.F) { fuzzRecord(f, fullAttempt()) }
func FuzzLease(f *testing.F)   { fuzzRecord(f, fullLease()) }
func FuzzQueue(f *testing.F)   { fuzzRecord(f, fullQueue()) }
func FuzzCron(f *testing.F)    { fuzzRecord(f, fullCron()) }
func FuzzBudget(f *testing.F)  { fuzzRecord(f, fullBudget()) }
func FuzzSignal(f *testing.F)  { fuzzRecord(f, fullSignal()) }
func FuzzLedger(f *testing.F)  { fuzzRecord(f, fullLedgerEntry()) }
func FuzzReplica(f *testing.F) { fuzzRecord(f, fullReplica()) }
func FuzzBinding(f *testing.F) { fuzzRecord(f, fullBinding()) }
func FuzzScript(f *testing.F)  { fuzzRecord(f, fullScript()) }
func FuzzHistory(f *testing.F) { fuzzRecord(f, fullHistory()) }
func FuzzGroup(f *testing.F)   { fuzzRecord(f, fullGroup()) }
func FuzzGroupMessage(f *testing.F) {
	fuzzRecord(f, fullGroupMessage())
}
func FuzzGroupCount(f *testing.F) { fuzzRecord(f, fullGroupCount()) }
func FuzzGroupEnd(f *testing.F)   { fuzzRecord(f, fullGroupEnd()) }
func FuzzAct(f *testing.F)        { fuzzRecord(f, fullAct()) }
func FuzzKey(f *testing.F) {
	fuzzRecord(f, &storage.Key{Weight: 7, Paused: true, Pinned: true, MaxDepth: 500})
}
func FuzzThrottle(f *testing.F) {
	fuzzRecord(f, &storage.Throttle{Rate: 2.5, Burst: 10, Concurrency: 3, ByCost: true, AdaptiveMin: 2})
}
func FuzzDedupEntry(f *testing.F) {
	fuzzRecord(f, &storage.DedupEntry{ID: storage.ID{1, 2, 3}, At: 7, Key: "acme"})
}

func FuzzResult(f *testing.F) {
	fuzzRecord(f, fullResult())
}

func FuzzKeys(f *testing.F) {
	mk := storage.MessageKey{Queue: 42, Key: "acme", Rank: 4, ID: storage.ID{1, 2, 3}}
	seed(f, storage.AppendLeaseKey(nil, mk, 7), storage.AppendScheduledKey(nil, 7, mk), storage.AppendStateKey(nil, "a", "", "b"),
		storage.AppendLedgerKey(nil, "acme", 1_700_000_000_000_000_000), storage.AppendLedgerIDKey(nil, 7, "acme", "id"))
	f.Fuzz(func(t *testing.T, k []byte) {
		if mk, err := storage.ParseMessageKey(k); err == nil && !bytes.Equal(mk.Append(nil), k) {
			t.Errorf("message key %x became %+v", k, mk)
		}
		if mk, fence, err := storage.ParseLeaseKey(k); err == nil && !bytes.Equal(storage.AppendLeaseKey(nil, mk, fence), k) {
			t.Errorf("lease key %x became %+v %d", k, mk, fence)
		}
		if due, mk, err := storage.ParseScheduledKey(k); err == nil && !bytes.Equal(storage.AppendScheduledKey(nil, due, mk), k) {
			t.Errorf("scheduled key %x became %d %+v", k, due, mk)
		}
		if parts, err := storage.ParseStateKey(k); err == nil && !bytes.Equal(storage.AppendStateKey(nil, parts...), k) {
			t.Errorf("state key %x became %q", k, parts)
		}
		if queue, gen, id, err := storage.ParseDedupKey(k); err == nil && !bytes.Equal(storage.AppendDedupKey(nil, queue, gen, id), k) {
			t.Errorf("dedup key %x became %d %d %q", k, queue, gen, id)
		}
		if queue, gen, id, err := storage.ParseResultKey(k); err == nil && !bytes.Equal(storage.AppendResultKey(nil, queue, gen, id), k) {
			t.Errorf("result key %x became %d %d %s", k, queue, gen, id)
		}
		if lk, err := storage.ParseLedgerKey(k); err == nil {
			again := storage.AppendLedgerKey(nil, lk.Name, lk.At)
			if lk.ID != "" {
				again = storage.AppendLedgerIDKey(nil, lk.Day, lk.Name, lk.ID)
			}
			if !bytes.Equal(again, k) {
				t.Errorf("ledger key %x became %+v", k, lk)
			}
		}
		if subject, name, err := storage.ParseSignalKey(k); err == nil && !bytes.Equal(storage.AppendSignalKey(nil, subject, name), k) {
			t.Errorf("signal key %x became %q %q", k, subject, name)
		}
		if after := storage.After(k); after != nil && bytes.Compare(after, k) <= 0 {
			t.Errorf("after %x is %x", k, after)
		}
	})
}

func FuzzID(f *testing.F) {
	f.Add("018f5e8a-7c00-7abc-8def-0123456789ab")
	f.Add("018f5e8a-7c00-7abc-8def-012345678-ab")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := storage.ParseID(s)
		if err != nil {
			return
		}
		if again, err := storage.ParseID(id.String()); err != nil || again != id || len(s) != 36 {
			t.Errorf("%q became %s, then %s, %v", s, id, again, err)
		}
	})
}
