package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

func TestAnEmptyBatchIsOne(t *testing.T) {
	var b storage.Batch
	if b.Len() != 0 || b.Size() != 12 || !bytes.Equal(b.Bytes(), make([]byte, 12)) {
		t.Errorf("%d records, %d bytes: %x", b.Len(), b.Size(), b.Bytes())
	}
	if rs := records(t, &b); len(rs) != 0 {
		t.Errorf("records %v", rs)
	}
}

func TestABatchKeepsCopies(t *testing.T) {
	var b storage.Batch
	key, value := []byte("key"), []byte("value")
	b.Put(storage.Messages, key, value)
	clear(key)
	clear(value)
	if r := records(t, &b)[0]; string(r.Key) != "key" || string(r.Value) != "value" {
		t.Errorf("%q = %q", r.Key, r.Value)
	}
}

func TestAResetBatchStartsAgain(t *testing.T) {
	var b storage.Batch
	b.Put(storage.Messages, []byte("old"), nil)
	b.Reset()
	if b.Len() != 0 || b.Size() != 12 || len(records(t, &b)) != 0 {
		t.Errorf("%d records in %d bytes after Reset", b.Len(), b.Size())
	}
	b.Delete(storage.Messages, []byte("new"))
	if rs := records(t, &b); len(rs) != 1 || string(rs[0].Key) != "new" || binary.LittleEndian.Uint32(b.Bytes()[8:]) != 1 {
		t.Errorf("records %v", rs)
	}
}

func TestABatchIsAppendedToAnother(t *testing.T) {
	var a, b, empty storage.Batch
	b.Append(&empty)
	if b.Len() != 0 || b.Size() != 12 {
		t.Errorf("%d records in %d bytes", b.Len(), b.Size())
	}
	a.Put(storage.Messages, []byte("a"), []byte("1"))
	b.SingleDelete(storage.Leases, []byte("b"))
	empty.Append(&a)
	a.Append(&b)
	a.Delete(storage.State, []byte("c"))
	want := []storage.Record{
		{Op: storage.OpPut, Family: storage.Messages, Key: []byte("a"), Value: []byte("1")},
		{Op: storage.OpSingleDelete, Family: storage.Leases, Key: []byte("b")},
		{Op: storage.OpDelete, Family: storage.State, Key: []byte("c")},
	}
	if got := records(t, &a); !reflect.DeepEqual(got, want) || a.Len() != 3 {
		t.Errorf("%d records: %v", a.Len(), got)
	}
	if got := records(t, &empty); !reflect.DeepEqual(got, want[:1]) {
		t.Errorf("the first alone: %v", got)
	}
	if _, err := storage.ParseBatch(a.Bytes()); err != nil {
		t.Error(err)
	}
}

func TestBuildingABatchThatHasItsMemoryAllocatesNothing(t *testing.T) {
	var b storage.Batch
	key, value := make([]byte, 40), make([]byte, 256)
	if n := testkit.Allocations(100, func() {
		b.Reset()
		for range 64 {
			b.Put(storage.Messages, key, value)
			b.SingleDelete(storage.Messages, key)
		}
		b.Bytes()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestARangeWithoutKeysAddsNothing(t *testing.T) {
	var b storage.Batch
	b.DeleteRange(storage.Messages, []byte("b"), []byte("a"))
	b.DeleteRange(storage.Messages, []byte("a"), []byte("a"))
	if b.Len() != 0 {
		t.Errorf("%d records", b.Len())
	}
	b.DeleteRange(storage.Messages, nil, []byte("a"))
	if b.Len() != 1 {
		t.Errorf("%d records", b.Len())
	}
}

func TestMistakesOfTheCallerPanic(t *testing.T) {
	var b storage.Batch
	for name, f := range map[string]func(){
		"range without an end": func() { b.DeleteRange(storage.Messages, []byte("a"), nil) },
		"family that is none":  func() { b.Put(storage.Family(len(storage.Families())), nil, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	if b.Len() != 0 {
		t.Errorf("%d records", b.Len())
	}
}

func TestEachStopsAtTheFirstError(t *testing.T) {
	var b storage.Batch
	b.Delete(storage.Messages, nil)
	b.Delete(storage.Messages, nil)
	calls, stop := 0, errors.New("stop")
	if err := b.Each(func(storage.Record) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestBatchesThatNobodyBuiltAreRefused(t *testing.T) {
	head := func(count byte, records ...byte) []byte {
		return append([]byte{0, 0, 0, 0, 0, 0, 0, 0, count, 0, 0, 0}, records...)
	}
	for name, rep := range map[string][]byte{
		"nothing":                  nil,
		"short header":             make([]byte, 11),
		"sequence number":          append([]byte{1}, make([]byte, 11)...),
		"fewer records than said":  head(2, 0x04, 0, 0),
		"more records than said":   head(0, 0x04, 0, 0),
		"operation without family": head(1, 0x01, 0, 0, 0),
		"unknown operation":        head(1, 0x06, 0, 0, 0),
		"unknown family":           head(1, 0x04, 200, 1, 0),
		"key past the end":         head(1, 0x04, 0, 2, 'a'),
		"put without a value":      head(1, 0x05, 0, 1, 'a'),
		"length without an end":    head(1, 0x04, 0, 0x80),
		"length of 2^64":           head(1, 0x04, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02),
		"half a record":            head(1, 0x04),
		"range that is backwards":  head(1, 0x0e, 0, 1, 'b', 1, 'a'),
	} {
		if _, err := storage.ParseBatch(rep); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v, want %v", name, err, storage.ErrCorrupt)
		}
	}
}
