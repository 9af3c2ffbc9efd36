package storage_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// parts are what keys are made of, drawn so that neighbours, prefixes and
// extremes are common.
type parts struct {
	due   int64
	mk    storage.MessageKey
	fence uint64
}

func drawParts(r *rand.Rand) parts {
	pick := func(xs ...uint64) uint64 { return xs[r.IntN(len(xs))] }
	p := parts{
		due:   int64(pick(0, 1, 255, 256, 1<<62, 1<<63-1, r.Uint64()>>1)),
		fence: pick(0, 1, 255, 256, 1<<63, 1<<64-1, r.Uint64()),
		mk: storage.MessageKey{
			Queue: uint32(pick(0, 1, 255, 256, 1<<31, 1<<32-1, uint64(r.Uint32()))),
			Key:   drawString(r),
			Rank:  uint8(r.IntN(256)),
		},
	}
	for i := range p.mk.ID {
		p.mk.ID[i] = byte(pick(0, 0, 255, r.Uint64()))
	}
	return p
}

func drawString(r *rand.Rand) string {
	b := make([]byte, []int{0, 1, 2, 3, 255, 256, 300}[r.IntN(7)])
	for i := range b {
		b[i] = "\x00ab:\xff"[r.IntN(5)]
	}
	return string(b)
}

func compareStrings(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func compareMessageKeys(a, b storage.MessageKey) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), compareStrings(a.Key, b.Key),
		cmp.Compare(a.Rank, b.Rank), bytes.Compare(a.ID[:], b.ID[:]))
}

func TestKeysSortAsTheirPartsDo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 40_000 {
		a, b := drawParts(r), drawParts(r)
		if r.IntN(2) == 0 { // most of the order is decided late only between keys that are alike
			b.mk.Queue, b.mk.Key, b.due = a.mk.Queue, a.mk.Key, a.due
		}
		mk := compareMessageKeys(a.mk, b.mk)
		check := func(kind string, ka, kb []byte, want int) {
			if got := bytes.Compare(ka, kb); got != want {
				t.Fatalf("%s keys of %+v and %+v compare %d, want %d", kind, a, b, got, want)
			}
		}
		check("message", a.mk.Append(nil), b.mk.Append(nil), mk)
		check("lease", storage.AppendLeaseKey(nil, a.mk, a.fence), storage.AppendLeaseKey(nil, b.mk, b.fence),
			cmp.Or(mk, cmp.Compare(a.fence, b.fence)))
		check("scheduled", storage.AppendScheduledKey(nil, a.due, a.mk), storage.AppendScheduledKey(nil, b.due, b.mk),
			cmp.Or(cmp.Compare(a.due, b.due), mk))
		sa, sb := []string{drawString(r), drawString(r)}, []string{drawString(r), drawString(r)}
		check("state", storage.AppendStateKey(nil, sa...), storage.AppendStateKey(nil, sb...),
			slices.CompareFunc(sa, sb, compareStrings))
	}
}

func TestKeysAreReadBackAsWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5_000 {
		p := drawParts(r)
		mk, err := storage.ParseMessageKey(p.mk.Append(nil))
		if err != nil || mk != p.mk {
			t.Fatalf("message key %+v is read as %+v, %v", p.mk, mk, err)
		}
		mk, fence, err := storage.ParseLeaseKey(storage.AppendLeaseKey(nil, p.mk, p.fence))
		if err != nil || mk != p.mk || fence != p.fence {
			t.Fatalf("lease key %+v is read as %+v %d, %v", p, mk, fence, err)
		}
		due, mk, err := storage.ParseScheduledKey(storage.AppendScheduledKey(nil, p.due, p.mk))
		if err != nil || mk != p.mk || due != p.due {
			t.Fatalf("scheduled key %+v is read as %d %+v, %v", p, due, mk, err)
		}
		state := []string{drawString(r), drawString(r), drawString(r)}
		got, err := storage.ParseStateKey(storage.AppendStateKey(nil, state...))
		if err != nil || !slices.Equal(got, state) {
			t.Fatalf("state key %q is read as %q, %v", state, got, err)
		}
		pair := [2]string{"s" + state[0], "n" + state[1]}
		subject, name, err := storage.ParseSignalKey(storage.AppendSignalKey(nil, pair[0], pair[1]))
		if err != nil || subject != pair[0] || name != pair[1] {
			t.Fatalf("signal key %q is read as %q %q, %v", pair, subject, name, err)
		}
		name, at := "b"+state[0], p.due
		lk, err := storage.ParseLedgerKey(storage.AppendLedgerKey(nil, name, at))
		if want := (storage.LedgerKey{Day: storage.LedgerDay(at), Name: name, At: at}); err != nil || lk != want {
			t.Fatalf("ledger key %+v is read as %+v, %v", want, lk, err)
		}
		lk, err = storage.ParseLedgerKey(storage.AppendLedgerIDKey(nil, 7, name, "i"+state[1]))
		if want := (storage.LedgerKey{Day: 7, Name: name, ID: "i" + state[1]}); err != nil || lk != want {
			t.Fatalf("ledger key %+v is read as %+v, %v", want, lk, err)
		}
	}
}

// TestTheNewestEntryOfADaySortsFirst also requires that the entries and the ids of a day are in
// the range of the day.
func TestTheNewestEntryOfADaySortsFirst(t *testing.T) {
	day := storage.LedgerDay(1_700_000_000_000_000_000)
	older, newer := storage.AppendLedgerKey(nil, "acme", 1_700_000_000_000_000_000), storage.AppendLedgerKey(nil, "acme", 1_700_000_000_000_000_001)
	if bytes.Compare(newer, older) >= 0 {
		t.Errorf("%x is not before %x", newer, older)
	}
	prefix := storage.AppendLedgerPrefix(nil, day, "acme")
	if !bytes.HasPrefix(older, prefix) || bytes.HasPrefix(storage.AppendLedgerKey(nil, "acme2", 1_700_000_000_000_000_000), prefix) {
		t.Error("the entries of a budget are not those with its prefix")
	}
	from, to := storage.AppendLedgerDay(nil, day), storage.AppendLedgerDay(nil, day+1)
	for _, k := range [][]byte{older, newer, storage.AppendLedgerIDKey(nil, day, "\xff\xff", "\xff")} {
		if bytes.Compare(k, from) < 0 || bytes.Compare(k, to) >= 0 {
			t.Errorf("%x is not in the range of its day", k)
		}
	}
}

func TestMessagesOfAKeyLieWithinItsPrefix(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5_000 {
		a, b := drawParts(r).mk, drawParts(r).mk
		prefix := storage.AppendKeyPrefix(nil, a.Queue, a.Key)
		after := storage.After(prefix)
		for _, mk := range []storage.MessageKey{a, b} {
			k := mk.Append(nil)
			inside := bytes.Compare(k, prefix) >= 0 && (after == nil || bytes.Compare(k, after) < 0)
			if want := mk.Queue == a.Queue && mk.Key == a.Key; inside != want {
				t.Fatalf("%+v within the prefix of %+v: %v, want %v", mk, a, inside, want)
			}
		}
	}
}

func TestAfterIsTheSmallestKeyPastAPrefix(t *testing.T) {
	for _, tt := range []struct{ prefix, want string }{
		{"a", "b"}, {"ab", "ac"}, {"a\xff", "b"}, {"\x00", "\x01"}, {"\xfe\xff\xff", "\xff"},
	} {
		if got := storage.After([]byte(tt.prefix)); string(got) != tt.want {
			t.Errorf("after %q: %q, want %q", tt.prefix, got, tt.want)
		}
	}
	for _, prefix := range []string{"", "\xff", "\xff\xff"} {
		if got := storage.After([]byte(prefix)); got != nil {
			t.Errorf("after %q: %q, want none", prefix, got)
		}
	}
	prefix := []byte("ab")
	storage.After(prefix)
	if string(prefix) != "ab" {
		t.Errorf("after changed its argument to %q", prefix)
	}
}

func TestATimeBeforeTheEpochIsDueAtOnce(t *testing.T) {
	mk := goldenKey(t)
	if got := storage.AppendScheduledKey(nil, -1, mk); !bytes.Equal(got, storage.AppendScheduledKey(nil, 0, mk)) {
		t.Errorf("due -1 has the key %x", got)
	}
}

func TestKeysThatAreNoneAreRefused(t *testing.T) {
	mk := goldenKey(t)
	message := mk.Append(nil)
	lease := storage.AppendLeaseKey(nil, mk, 1)
	scheduled := storage.AppendScheduledKey(nil, 1, mk)
	negative := slices.Clone(scheduled)
	negative[0] = 0x80
	parsers := map[string]func(k []byte) error{
		"message":   func(k []byte) error { _, err := storage.ParseMessageKey(k); return err },
		"lease":     func(k []byte) error { _, _, err := storage.ParseLeaseKey(k); return err },
		"scheduled": func(k []byte) error { _, _, err := storage.ParseScheduledKey(k); return err },
		"state":     func(k []byte) error { _, err := storage.ParseStateKey(k); return err },
		"signal":    func(k []byte) error { _, _, err := storage.ParseSignalKey(k); return err },
		"ledger":    func(k []byte) error { _, err := storage.ParseLedgerKey(k); return err },
	}
	entry := storage.AppendLedgerKey(nil, "acme", 1_700_000_000_000_000_000)
	otherDay := slices.Clone(entry)
	otherDay[3]++
	unnamed := []byte{0, 0, 0, 1, 1, 0, 0, 'x'}
	for kind, bad := range map[string][][]byte{
		"message":   {nil, message[:len(message)-1], append(slices.Clone(message), 0), lease, scheduled},
		"lease":     {nil, message, lease[:len(lease)-1], append(slices.Clone(lease), 0)},
		"scheduled": {nil, scheduled[:7], scheduled[:len(scheduled)-1], append(slices.Clone(scheduled), 0), negative},
		"state":     {{0}, {0, 1}, {0, 1, 'a', 0}},
		"signal":    {nil, {0}, {0, 1}, {0, 1, 'a'}, {0, 0, 'a'}, {0, 2, 'a'}},
		"ledger":    {nil, entry[:len(entry)-1], append(slices.Clone(entry), 0), otherDay, unnamed, entry[:4], {0, 0, 0, 1, 2, 0, 1, 'a', 'x'}},
	} {
		for _, k := range bad {
			if err := parsers[kind](k); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s key %x: %v, want %v", kind, k, err, storage.ErrCorrupt)
			}
		}
	}
}

func TestAStringTooLongForAKeyNeverPasses(t *testing.T) {
	long := strings.Repeat("k", 1<<16-1)
	mk, err := storage.ParseMessageKey(storage.AppendMessageKey(nil, 1, long, 0, storage.ID{}))
	if err != nil || mk.Key != long {
		t.Fatalf("a string of 64 KiB - 1 is read back as %d bytes, %v", len(mk.Key), err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a string of 64 KiB went into a key")
		}
	}()
	storage.AppendKeyPrefix(nil, 1, long+"k")
}

func TestIDsHaveOneSpelling(t *testing.T) {
	const text = "018f5e8a-7c00-7abc-8def-0123456789ab"
	id, err := storage.ParseID(text)
	if err != nil || id.String() != text {
		t.Fatalf("%s is read as %s, %v", text, id, err)
	}
	if upper, err := storage.ParseID(strings.ToUpper(text)); err != nil || upper != id {
		t.Errorf("upper case is read as %s, %v", upper, err)
	}
	if b, err := id.AppendText([]byte("id ")); err != nil || string(b) != "id "+text {
		t.Errorf("appended as %q, %v", b, err)
	}
	for _, bad := range []string{
		"", text[:35], text + "0", "{" + text + "}", strings.ReplaceAll(text, "-", ""), strings.ReplaceAll(text, "-", "0"),
		"018f5e8a-7c00-7abc-8def-0123456789ag", "018f5e8a-7c00-7abc-8def-01234567-9ab", "018f5e8a-7c00-7abc-8def-012345678-ab",
		"-18f5e8a-7c00-7abc-8def-0123456789ab", "018f5e8a-7c00-7abc-8def-0123456789a-", "018f5e8-a7c00-7abc-8def-0123456789ab",
	} {
		if got, err := storage.ParseID(bad); err == nil {
			t.Errorf("%q is read as %s", bad, got)
		}
	}
}

func TestAnIDLeadsToItsRecord(t *testing.T) {
	var last storage.ID
	for i, nanos := range []int64{1, 999_999, 1_700_000_000_123_456_789, 1_700_000_000_123_456_790, 1_700_000_000_124_000_000} {
		key, rank := fmt.Sprint("k", i), uint8(i)
		id := storage.MakeID(nanos, storage.KeyHash(key), rank, 1<<32-1)
		if id.Nanos() != nanos || id.Time().UnixNano() != nanos || id.Rank() != rank || id.KeyHash() != storage.KeyHash(key) {
			t.Errorf("%s: %d, rank %d, hash %d", id, id.Nanos(), id.Rank(), id.KeyHash())
		}
		if text := id.String(); text[14] != '7' || !slices.Contains([]byte("89ab"), text[19]) {
			t.Errorf("%s is no UUIDv7", id)
		}
		if bytes.Compare(last[:], id[:]) >= 0 {
			t.Errorf("%s is not after %s", id, last)
		}
		last = id
		for mk, fits := range map[storage.MessageKey]bool{
			{Key: key, Rank: rank, ID: id}: true, {Key: key + "x", Rank: rank, ID: id}: false, {Key: key, Rank: rank + 1, ID: id}: false,
			{Key: key, Rank: 10, ID: storage.MakeID(nanos, storage.KeyHash(key), 10, 0)}: false,
		} {
			if err := mk.Check(); (err == nil) != fits {
				t.Errorf("%+v: %v", mk, err)
			}
		}
	}
	if allocs := testkit.Allocations(100, func() { _, _ = storage.ParseID([]byte("018f5e8a-7c00-7abc-8def-0123456789ab")) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}
