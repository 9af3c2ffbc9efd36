package storage_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

func TestRecordsAreReadBackAsWritten(t *testing.T) {
	var (
		m storage.Message
		a storage.Attempt
		l storage.Lease
		q storage.Queue
		c storage.Cron
		s storage.Script
	)
	for _, tt := range []struct{ full, got record }{
		{fullMessage(), &m},
		{fullAttempt(), &a},
		{fullLease(), &l},
		{fullQueue(), &q},
		{fullCron(), &c},
		{fullScript(), &s},
		{fullAct(), &storage.Act{At: 9}},
		{fullSignal(), &storage.Signal{At: 9}},
		{fullBudget(), &storage.Budget{Made: 9}},
		{fullLedgerEntry(), &storage.LedgerEntry{Made: 9}},
		{fullHistory(), &storage.History{Begun: 9}},
		{fullGroup(), &storage.Group{Outer: 9}},
		{fullGroupMessage(), &storage.GroupMessage{TTL: 9}},
		{fullGroupCount(), &storage.GroupCount{Done: 9}},
		{fullGroupEnd(), &storage.GroupEnd{Done: 9}},
		{&storage.Message{}, &storage.Message{Meta: storage.Meta{Cost: 9}}},
		{&storage.Message{Dead: &storage.Dead{}}, &storage.Message{}},
		{&storage.Attempt{Failures: []storage.Failure{*fullFailure(), {}, {Attempt: 2}}}, &storage.Attempt{}},
		{&storage.Attempt{Attempt: math.MaxUint32, ReadyAt: math.MinInt64}, &storage.Attempt{}},
		{&storage.Lease{Until: math.MaxInt64, Meta: storage.Meta{Throttles: []string{""}}}, &storage.Lease{}},
		{&storage.Queue{Values: queueset.Values{queueset.MaxDepth: math.MaxUint64}}, &storage.Queue{Number: 9}},
	} {
		prefix := []byte("what was there")
		enc := tt.full.Append(prefix)
		if !bytes.HasPrefix(enc, prefix) {
			t.Errorf("%T does not append", tt.full)
		}
		if err := tt.got.Decode(enc[len(prefix):]); err != nil {
			t.Errorf("%T: %v", tt.full, err)
		}
		if !reflect.DeepEqual(tt.got, tt.full) {
			t.Errorf("got  %+v\nwant %+v", tt.got, tt.full)
		}
	}
}

// No field may be forgotten: a record in which everything is set has no zero
// field left, and neither has what was read back.
func TestRecordsInTheTestsAreComplete(t *testing.T) {
	for _, r := range []any{*fullMessage(), fullMessage().Meta, *fullMessage().Dead, *fullAttempt(), *fullFailure(), *fullLease(), *fullQueue(), *fullCron(), *fullScript(), *fullAct(), *fullBudget(), *fullLedgerEntry(), *fullSignal(), *fullReplica(), *fullHistory(), *fullGroup(), *fullGroupMessage(), *fullGroupCount(), *fullGroupEnd()} {
		v := reflect.ValueOf(r)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%T has no %s", r, v.Type().Field(i).Name)
			}
		}
	}
	for s, n := range fullQueue().Values {
		if n == 0 {
			t.Errorf("the queue has no %s", queueset.Rows()[s].Name)
		}
	}
}

// fieldsOf splits a record into its encoded fields.
func fieldsOf(tb testing.TB, record []byte) (nums []int, fields [][]byte) {
	tb.Helper()
	for len(record) > 0 {
		num, _, n := protowire.ConsumeField(record)
		if n < 0 {
			tb.Fatal(protowire.ParseError(n))
		}
		nums, fields = append(nums, int(num)), append(fields, record[:n])
		record = record[n:]
	}
	return nums, fields
}

func TestFieldsAreReadInAnyOrder(t *testing.T) {
	unknown := []byte{0xa0, 0x06, 0x01}
	for _, tt := range []struct{ full, got record }{
		{fullAttempt(), &storage.Attempt{}}, {fullLease(), &storage.Lease{}}, {fullQueue(), &storage.Queue{}}, {fullCron(), &storage.Cron{}}, {fullScript(), &storage.Script{}},
		{fullSignal(), &storage.Signal{}}, {fullBudget(), &storage.Budget{}}, {fullLedgerEntry(), &storage.LedgerEntry{}}, {fullReplica(), &storage.Replica{}},
		{fullHistory(), &storage.History{}}, {fullGroup(), &storage.Group{}}, {fullGroupMessage(), &storage.GroupMessage{}}, {fullGroupCount(), &storage.GroupCount{}}, {fullGroupEnd(), &storage.GroupEnd{}},
	} {
		_, fields := fieldsOf(t, tt.full.Append(nil))
		slices.Reverse(fields)
		enc := bytes.Join(fields, unknown)
		if err := tt.got.Decode(enc); err != nil || !reflect.DeepEqual(tt.got, tt.full) {
			t.Errorf("got  %+v, %v\nwant %+v", tt.got, err, tt.full)
		}
	}
}

func TestABudgetWithoutANumberOrWithANegativeSumIsCorrupt(t *testing.T) {
	for _, b := range []storage.Budget{{Credited: 1}, {Made: 1, Spent: -1}, {Made: 1, Credited: -1}, {Made: 1, Refill: -1}} {
		if err := new(storage.Budget).Decode(b.Append(nil)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

func TestAGroupWithoutANameOrANumberOrWithANegativeCountIsCorrupt(t *testing.T) {
	for _, tt := range []struct{ rec, got record }{
		{&storage.Group{OpenedAt: 1}, &storage.Group{}}, {&storage.GroupMessage{Key: "acme"}, &storage.GroupMessage{}},
		{&storage.GroupCount{Pending: -1}, &storage.GroupCount{}}, {&storage.GroupCount{Done: 1, Buried: -1}, &storage.GroupCount{}},
		{&storage.GroupEnd{EndedAt: 1}, &storage.GroupEnd{}}, {&storage.GroupEnd{Number: 1, Dead: -1}, &storage.GroupEnd{}},
	} {
		if err := tt.got.Decode(tt.rec.Append(nil)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%+v: %v", tt.rec, err)
		}
	}
}

func TestARecordOfGroupsSaysWhatItNeeds(t *testing.T) {
	const group = 1<<32 + 7
	head, message, count := storage.AppendGroupKey(nil, group), storage.AppendGroupMessageKey(nil, group), storage.AppendGroupCountKey(nil, group, 42)
	for _, tt := range []struct {
		key, needs []byte
		rec        record
		of         uint64
		queue      uint32
	}{
		{head, message, fullGroup(), group, 0}, {message, head, fullGroupMessage(), group, 0}, {count, head, fullGroupCount(), group, 42},
		{storage.AppendGroupEndKey(nil, 1_700_000_000_000_000_000, "import-7"), nil, fullGroupEnd(), 0, 0},
	} {
		needs, err := storage.CheckState(tt.key, tt.rec.Append(nil))
		if !bytes.Equal(needs, tt.needs) || err != nil {
			t.Errorf("%T needs %x, %v", tt.rec, needs, err)
		}
		if _, of, queue, ok := storage.GroupOf(tt.key); of != tt.of || queue != tt.queue || ok != (tt.of != 0) {
			t.Errorf("%T is of group %d, queue %d, %v", tt.rec, of, queue, ok)
		}
		parts, err := storage.ParseStateKey(tt.key)
		if err != nil {
			t.Fatal(err)
		}
		parts[1] = parts[1][1:]
		if _, err := storage.CheckState(storage.AppendStateKey(nil, parts...), tt.rec.Append(nil)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%T with a short number is %v", tt.rec, err)
		}
		if _, err := storage.CheckState(tt.key, []byte{0xff}); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%T that is damaged is %v", tt.rec, err)
		}
	}
}

func TestAThrottleWithAMinimumAboveItsConcurrencyIsCorrupt(t *testing.T) {
	for _, x := range []struct {
		set     storage.Throttle
		corrupt bool
	}{
		{storage.Throttle{Concurrency: 3, AdaptiveMin: 3}, false},
		{storage.Throttle{Concurrency: 3, AdaptiveMin: 4}, true},
		{storage.Throttle{Rate: 1, Burst: 1, AdaptiveMin: 1}, true},
	} {
		if err := new(storage.Throttle).Decode(x.set.Append(nil)); errors.Is(err, storage.ErrCorrupt) != x.corrupt {
			t.Errorf("%+v: %v", x.set, err)
		}
	}
}

func TestTheLastOfAFieldThatComesTwiceCounts(t *testing.T) {
	enc := (&storage.Attempt{Attempt: 1, Error: "first"}).Append(nil)
	enc = (&storage.Attempt{Attempt: 2, Error: "second"}).Append(enc)
	var a storage.Attempt
	if err := a.Decode(enc); err != nil || a.Attempt != 2 || a.Error != "second" {
		t.Errorf("got %+v, %v", a, err)
	}
}

// A field that is in a record and not in its description, or the other way round, would be
// misread by other tools.
func TestTheDescriptionListsEveryField(t *testing.T) {
	text, err := os.ReadFile("fila.proto")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string][]int{}
	number := regexp.MustCompile(`(?m)^  [^/\n]* = (\d+);`)
	for _, m := range regexp.MustCompile(`(?s)message (\w+) \{(.*?)\n\}`).FindAllStringSubmatch(string(text), -1) {
		for _, f := range number.FindAllStringSubmatch(m[2], -1) {
			n, _ := strconv.Atoi(f[1])
			described[m[1]] = append(described[m[1]], n)
		}
	}
	for name, r := range map[string]record{
		"Message": fullMessage(), "Attempt": fullAttempt(), "Lease": fullLease(), "Queue": fullQueue(), "Cron": fullCron(), "Script": fullScript(), "Act": fullAct(),
		"Signal": fullSignal(), "Replica": fullReplica(), "Budget": fullBudget(), "LedgerEntry": fullLedgerEntry(),
		"Binding": fullBinding(),
		"Group":   fullGroup(), "GroupMessage": fullGroupMessage(), "GroupCount": fullGroupCount(), "GroupEnd": fullGroupEnd(),
		"Body":       &storage.Message{Payload: []byte("x"), Headers: fullMessage().Headers},
		"Holders":    &storage.Holders{Messages: []string{"x"}},
		"DedupEntry": &storage.DedupEntry{ID: goldenID(t), At: 1, Key: "acme"},
		"Result":     fullResult(),
		"Key":        &storage.Key{Weight: 1, Paused: true, Pinned: true, MaxDepth: 500},
		"Throttle":   &storage.Throttle{Rate: 1, Burst: 1, Concurrency: 1, ByCost: true, AdaptiveMin: 1},
	} {
		nums, _ := fieldsOf(t, r.Append(nil))
		if nums = slices.Compact(nums); !slices.Equal(nums, described[name]) {
			t.Errorf("%s: fields %v, but fila.proto describes %v", name, nums, described[name])
		}
	}
}

// fullResult is a record with all fields.
func fullResult() *storage.Result {
	r := fullDone()
	r.Value = []byte("x")
	return r
}

func TestDecodeDoesNotCopyThePayload(t *testing.T) {
	enc := fullMessage().Append(nil)
	var m storage.Message
	if err := m.Decode(enc); err != nil {
		t.Fatal(err)
	}
	clear(enc)
	if string(m.Payload) != "\x00\x00\x00\x00\x00" || string(m.Headers[0].Name) != "\x00\x00\x00\x00\x00" {
		t.Errorf("payload %q and header %q are copies", m.Payload, m.Headers[0].Name)
	}
	if m.Throttles[0] != "api" || m.Dead.Queue != "orders" {
		t.Errorf("throttle %q and queue %q changed with the record", m.Throttles[0], m.Dead.Queue)
	}
	if cap(m.Payload) != len(m.Payload) {
		t.Error("appending to the payload would overwrite the record")
	}
}

func TestRecordsOfANewerFilaAreRead(t *testing.T) {
	enc := fullAttempt().Append(nil)
	enc = append(enc,
		0xa0, 0x06, 0x01, // field 100, varint
		0xaa, 0x06, 0x02, 'h', 'i', // field 101, bytes
		0xb5, 0x06, 1, 2, 3, 4, // field 102, 4 bytes
		0xb9, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, // field 103, 8 bytes
		0xc3, 0x06, 0xa0, 0x06, 0x01, 0xc4, 0x06, // field 104, a group
	)
	var a storage.Attempt
	if err := a.Decode(enc); err != nil || !reflect.DeepEqual(&a, fullAttempt()) {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestRecordsThatCannotBeAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		r record
		b []byte
	}{
		"payload as a number":       {&storage.Message{}, []byte{0x08, 0x01}},
		"weight as bytes":           {&storage.Message{}, []byte{0x22, 0x01, 'a'}},
		"weight past 32 bits":       {&storage.Message{}, []byte{0x20, 0x80, 0x80, 0x80, 0x80, 0x10}},
		"header that is cut short":  {&storage.Message{}, []byte{0x12, 0x02, 0x0a, 0x05}},
		"death that is cut short":   {&storage.Message{}, []byte{0x42, 0x02, 0x0a, 0x05}},
		"attempts past 32 bits":     {&storage.Queue{}, []byte{0x38, 0x80, 0x80, 0x80, 0x80, 0x10}},
		"flag that is not 0 or 1":   {&storage.Queue{}, []byte{0x58, 0x02}},
		"payload past the end":      {&storage.Message{}, []byte{0x0a, 0x7f, 'a'}},
		"varint without an end":     {&storage.Lease{}, []byte{0x08, 0xff}},
		"field number 0":            {&storage.Attempt{}, []byte{0x00, 0x01}},
		"end of a group not begun":  {&storage.Attempt{}, []byte{0xc4, 0x06}},
		"wire type that is not one": {&storage.Attempt{}, []byte{0x0f}},
	} {
		if err := tt.r.Decode(tt.b); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v, want %v", name, err, storage.ErrCorrupt)
		}
	}
}

func TestFormatVersionDecidesWhetherAStoreIsOpened(t *testing.T) {
	failed := errors.New("disk on fire")
	for _, tt := range []struct {
		value string
		err   error
		want  error
	}{
		{"1", nil, nil},
		{"2", nil, nil},
		{"3", nil, storage.ErrFormat},
		{"4000000000", nil, storage.ErrFormat},
		{"0", nil, storage.ErrCorrupt},
		{"", nil, storage.ErrCorrupt},
		{"-1", nil, storage.ErrCorrupt},
		{"one", nil, storage.ErrCorrupt},
		{"", storage.ErrNotFound, storage.ErrNotFound},
		{"", failed, failed},
	} {
		err := storage.CheckFormat(func(storage.Family, []byte) ([]byte, error) { return []byte(tt.value), tt.err })
		if !errors.Is(err, tt.want) {
			t.Errorf("format %q, %v: %v, want %v", tt.value, tt.err, err, tt.want)
		}
	}
}

func TestAReadyTimeIsAddedToARecordWithoutTouchingIt(t *testing.T) {
	m := storage.Message{Payload: []byte("p"), Meta: storage.Meta{Cost: 3}}
	record := m.Append(nil)
	before := slices.Clone(record)
	var got storage.Message
	if err := got.Decode(storage.AppendReadyAt(record, 1_700_000_000_000_000_000)); err != nil {
		t.Fatal(err)
	}
	if got.ReadyAt != 1_700_000_000_000_000_000 || string(got.Payload) != "p" || got.Cost != 3 {
		t.Errorf("got %+v", got)
	}
	if !bytes.Equal(record, before) {
		t.Error("the record that others share has changed")
	}
}

func TestDecodingLikeAnotherReadsTheSame(t *testing.T) {
	for _, throttles := range [][]string{nil, {"a"}, {"a", "b"}, {"a", "c"}, {"b", "a"}, {"c"}, {"a", "b", "c"}, {"a", "b", "c", "d"}, {"", ""}} {
		enc := (&storage.Message{Payload: []byte("x"), Meta: storage.Meta{Throttles: throttles, Cost: 2}}).Append(nil)
		for _, like := range [][]string{nil, {"a"}, {"a", "b"}, {"a", "b", "c"}, {""}} {
			kept := slices.Clone(like)
			var m storage.Message
			if err := m.DecodeLike(enc, &storage.Meta{Throttles: like}); err != nil || !slices.Equal(m.Throttles, throttles) || m.Cost != 2 {
				t.Errorf("%q like %q: got %+v, %v", throttles, like, m, err)
			}
			if !slices.Equal(like, kept) {
				t.Errorf("%q like %q: that has changed to %q", throttles, kept, like)
			}
		}
	}
}

// A queue that was stored before its hooks could have limits of their own has none.
func TestAQueueOfAnOlderFilaHasTheLimitsOfTheConfiguration(t *testing.T) {
	older, err := hex.DecodeString("082a10b0ea0118e80720e0d4032880b89929308827380540c0843d48e807520b" +
		"6f72646572732e64656164580160016801708080a8b1e39fe7cb177a0a726574" +
		"75726e206d736782010a72657475726e206e696c880114")
	if err != nil {
		t.Fatal(err)
	}
	want := *fullQueue()
	want.Values[queueset.LuaTimeout], want.Values[queueset.LuaMemory], want.Values[queueset.BreakerErrors] = 0, 0, 0
	want.Values[queueset.Batch], want.Values[queueset.BatchWait] = 0, 0
	want.Values[queueset.Signals], want.Values[queueset.Ordered], want.Values[queueset.ResultTTL] = 0, 0, 3_600_000
	want.Values[queueset.KeepDone] = 0
	var got storage.Queue
	if err := got.Decode(older); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if again := got.Append(nil); !bytes.Equal(again, older) {
		t.Errorf("written as %x", again)
	}
}

func TestAReplicaRecordIsWholeOrHasNotBegun(t *testing.T) {
	for _, x := range []struct {
		r       storage.Replica
		corrupt bool
	}{
		{storage.Replica{Cluster: "c"}, false},
		{storage.Replica{Cluster: "c", Index: 9, Term: 2, Number: 1}, false},
		{storage.Replica{}, true},
		{storage.Replica{Index: 9, Term: 2, Number: 1}, true},
		{storage.Replica{Cluster: "c", Index: 9}, true},
		{storage.Replica{Cluster: "c", Index: 9, Number: 1}, true},
		{storage.Replica{Cluster: "c", Term: 2, Number: 1}, true},
	} {
		if err := new(storage.Replica).Decode(x.r.Append(nil)); errors.Is(err, storage.ErrCorrupt) != x.corrupt {
			t.Errorf("%+v: %v", x.r, err)
		}
	}
}
