package storage_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"testing"

	"github.com/faisca/fila/storage"
)

func TestUsersAreReadWhenTheirVersionIsAnother(t *testing.T) {
	s := storage.NewMemory()
	if version, lines, err := storage.ReadUsers(s, 0); version != 0 || lines != nil || err != nil {
		t.Errorf("a store without users: %d, %v, %v", version, lines, err)
	}
	commit(t, s, true, func(b *storage.Batch) {
		b.Put(storage.State, storage.UserKey("a"), []byte("of a"))
		b.Put(storage.State, storage.UserKey("longer"), []byte("of longer"))
		b.Put(storage.State, storage.AppendStateKey(nil, "adm", "x"), []byte("before"))
		b.Put(storage.State, storage.AppendStateKey(nil, "acm", "x"), []byte("behind"))
		storage.PutUsersVersion(b, 7)
	})
	want := map[string]string{"a": "of a", "longer": "of longer"}
	if version, lines, err := storage.ReadUsers(s, 6); version != 7 || !maps.Equal(lines, want) || err != nil {
		t.Errorf("another version: %d, %v, %v", version, lines, err)
	}
	if version, lines, err := storage.ReadUsers(s, 7); version != 7 || lines != nil || err != nil {
		t.Errorf("the version that is known: %d, %v, %v", version, lines, err)
	}
	for _, key := range [][]byte{storage.UserKey("a"), storage.UsersVersionKey()} {
		if !storage.IsUsers(key) {
			t.Errorf("%q is not of the users", key)
		}
	}
	if storage.IsUsers(storage.ReplicaKey()) || storage.IsUsers(storage.AppendStateKey(nil, "acm", "x")) {
		t.Error("other records are of the users")
	}
	commit(t, s, true, storage.DeleteUsers)
	if version, lines, err := storage.ReadUsers(s, 7); version != 0 || lines != nil || err != nil {
		t.Errorf("after their removal: %d, %v, %v", version, lines, err)
	}
	for _, name := range []string{"adm", "acm"} {
		if _, err := s.Get(storage.State, storage.AppendStateKey(nil, name, "x")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUsersThatCannotBeReadAreDamage(t *testing.T) {
	for name, fill := range map[string]func(b *storage.Batch){
		"a version of another size": func(b *storage.Batch) { b.Put(storage.State, storage.UsersVersionKey(), []byte{1}) },
		"a user with two names": func(b *storage.Batch) {
			b.Put(storage.State, storage.AppendStateKey(nil, "acl", "a", "b"), nil)
			b.Put(storage.State, storage.UsersVersionKey(), binary.BigEndian.AppendUint64(nil, 1))
		},
	} {
		s := storage.NewMemory()
		commit(t, s, true, fill)
		if _, _, err := storage.ReadUsers(s, 0); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
