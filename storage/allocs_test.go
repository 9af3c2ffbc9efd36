//go:build !race

package storage_test

import (
	"reflect"
	"testing"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// The race detector allocates on its own.

func TestAppendingAMessageAllocatesOnce(t *testing.T) {
	once := func(what string, m *storage.Message) {
		if n := testkit.Allocations(100, func() { _ = m.Append(nil) }); n > 1 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	full := fullMessage()
	once("all fields", full)
	// Each alone, so that room for others does not hide that a field has none.
	for _, of := range reflect.VisibleFields(reflect.TypeOf(*full)) {
		if of.Anonymous {
			continue
		}
		var m storage.Message
		reflect.ValueOf(&m).Elem().FieldByIndex(of.Index).Set(reflect.ValueOf(full).Elem().FieldByIndex(of.Index))
		once(of.Name, &m)
	}
}

// Millions of records may be in memory.
func TestARecordTakesLittleMoreMemoryThanItsBytes(t *testing.T) {
	m := &storage.Message{Payload: make([]byte, 100)}
	record := m.Append(nil)
	if unused := cap(record) - len(record); unused > 10 {
		t.Errorf("%d bytes of memory for a record of %d", cap(record), len(record))
	}
}

func TestDecodingLikeAnotherAllocatesNoThrottles(t *testing.T) {
	like := &storage.Meta{Throttles: []string{"api", "tenant:acme"}}
	decode := func(throttles []string) float64 {
		enc := (&storage.Message{Payload: []byte("x"), Meta: storage.Meta{Throttles: throttles}}).Append(nil)
		var m storage.Message
		return testkit.Allocations(100, func() { _ = m.DecodeLike(enc, like) })
	}
	if without, with := decode(nil), decode(like.Throttles); with > without {
		t.Errorf("%v allocations with throttles, %v without", with, without)
	}
}
