package storage_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/faisca/fila/storage"
)

// shared stores a message with a body, and returns its key and its whole record.
func shared(t *testing.T, store *storage.Memory, id storage.ID, m *storage.Message) (key, record []byte) {
	t.Helper()
	key = goldenKey(t).Append(nil)
	record = m.Append(nil)
	own := storage.Message{Payload: m.Payload, Headers: m.Headers}
	var b storage.Batch
	b.Put(storage.Messages, key, storage.WithBody(record, id))
	b.Put(storage.Bodies, storage.AppendBodyKey(nil, id), own.Append(nil))
	b.Put(storage.Bodies, storage.AppendHoldersKey(nil, id), (&storage.Holders{Messages: []string{string(key)}}).Append(nil))
	if err := store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	return key, record
}

func TestAMessageAndItsBodyAreTheWholeMessage(t *testing.T) {
	for name, want := range map[string]*storage.Message{
		"full": fullMessage(), "payload only": {Payload: []byte("hello")}, "header only": {Headers: fullMessage().Headers, Meta: storage.Meta{Weight: 3}}, "empty": {},
	} {
		store, id := storage.NewMemory(), storage.ID{1, 15: 2}
		key, _ := shared(t, store, id, want)
		got := storage.Message{}
		record, err := storage.GetMessage(store, key)
		if err == nil {
			err = got.Decode(record)
		}
		want.Body = id
		if err != nil || !reflect.DeepEqual(&got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		it := storage.ScanMessages(store, nil, nil)
		if !it.Seek(nil) || !slices.Equal(it.Value(), record) || it.Next() || it.Err() != nil {
			t.Errorf("%s: a scan reads %x, %v", name, it.Value(), it.Err())
		}
		it.Close()
	}
}

func TestABodyIsHeldByRecordsThatReferToIt(t *testing.T) {
	store, id := storage.NewMemory(), storage.ID{7}
	key, record := shared(t, store, id, &storage.Message{Payload: []byte("hello")})
	holders, err := store.Get(storage.Bodies, storage.AppendHoldersKey(nil, id))
	if err != nil {
		t.Fatal(err)
	}
	held := func(id storage.ID) bool {
		is, err := storage.BodyHeld(store, id, holders)
		if err != nil {
			t.Error(err)
		}
		return is
	}
	if !held(id) || held(storage.ID{8}) {
		t.Error("the body is held by its message, and no other is")
	}
	var b storage.Batch
	b.SingleDelete(storage.Messages, key)
	b.Put(storage.Messages, key, record) // redriven: as a whole, under the same key
	if err := store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	if held(id) {
		t.Error("a message with its own payload holds the body")
	}
	if _, err := storage.BodyHeld(store, id, []byte{0xff}); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("damaged holders: %v", err)
	}
}

func TestOnlyAReferenceIsOne(t *testing.T) {
	id := storage.ID{3}
	with := storage.WithBody((&storage.Message{Payload: []byte("x"), Meta: storage.Meta{Weight: 1 << 30, Unique: "u"}}).Append(nil), id)
	if got, ok := storage.BodyOf(with); !ok || got != id {
		t.Errorf("%v, %v", got, ok)
	}
	if got, ok := storage.BodyOf(storage.AppendExpiresAt(storage.AppendReadyAt(with, 5), 7)); !ok || got != id {
		t.Errorf("with times: %v, %v", got, ok)
	}
	for n := range with {
		if got, ok := storage.BodyOf(with[:n]); ok {
			t.Errorf("%d bytes of it: %v", n, got)
		}
	}
	for _, m := range []*storage.Message{fullMessage(), {Payload: []byte("x"), Meta: storage.Meta{Body: id}}, {Meta: storage.Meta{Weight: 2}}, {}} {
		if got, ok := storage.BodyOf(m.Append(nil)); ok {
			t.Errorf("%+v refers to %v", m, got)
		}
	}
	for _, key := range [][]byte{nil, {0}, make([]byte, 16), make([]byte, 18), append([]byte{2}, make([]byte, 16)...)} {
		if _, _, err := storage.ParseBodyKey(key); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("key %x: %v", key, err)
		}
	}
	if got, holders, err := storage.ParseBodyKey(storage.AppendHoldersKey(nil, id)); err != nil || !holders || got != id {
		t.Errorf("%v, %v, %v", got, holders, err)
	}
}
