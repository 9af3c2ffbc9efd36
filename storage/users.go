package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Users of a cluster are records of its store in the family State, so that they are the same on all
// nodes: a record for each user, whose value is the line of rules that recreates it, and a version that
// every change increases. A store that one broker has for itself has neither.
const (
	stateUser         = "acl"         // then name
	stateUsersVersion = "acl_version" // 8 bytes, big-endian, from 1
)

// UserKey returns the key of the record of a user.
func UserKey(name string) []byte { return AppendStateKey(nil, stateUser, name) }

// UsersVersionKey returns the key of the version of all users.
func UsersVersionKey() []byte { return AppendStateKey(nil, stateUsersVersion) }

// PutUsersVersion adds the version of the users to a batch that changes them.
func PutUsersVersion(b *Batch, version uint64) {
	b.Put(State, UsersVersionKey(), binary.BigEndian.AppendUint64(nil, version))
}

// DeleteUsers adds to a batch the removal of all users.
func DeleteUsers(b *Batch) {
	prefix := AppendStateKey(nil, stateUser)
	b.DeleteRange(State, prefix, After(prefix))
	b.Delete(State, UsersVersionKey())
}

// IsUsers reports whether a key of the family State is of a user or of the version of the users.
func IsUsers(key []byte) bool {
	parts, err := ParseStateKey(key)
	return err == nil && len(parts) > 0 && (parts[0] == stateUser || parts[0] == stateUsersVersion)
}

// UserReader is what ReadUsers reads from.
type UserReader interface {
	Get(f Family, key []byte) ([]byte, error)
	Scan(f Family, from, to []byte) Iterator
}

// ReadUsers returns the version of the users of a store, 0 if it has none, and their lines by name unless
// that is the version that the caller knows. Of users that change meanwhile the lines may be newer than
// the version, and are those of one moment.
func ReadUsers(store UserReader, known uint64) (version uint64, lines map[string]string, err error) {
	value, err := store.Get(State, UsersVersionKey())
	switch {
	case errors.Is(err, ErrNotFound):
		return 0, nil, nil
	case err != nil:
		return 0, nil, fmt.Errorf("version of the users: %w", err)
	case len(value) != 8:
		return 0, nil, fmt.Errorf("version of the users, of %d bytes: %w", len(value), ErrCorrupt)
	}
	if version = binary.BigEndian.Uint64(value); version == known {
		return version, nil, nil
	}
	lines = map[string]string{}
	prefix := AppendStateKey(nil, stateUser)
	it := store.Scan(State, prefix, After(prefix))
	defer it.Close()
	for it.Next() {
		parts, err := ParseStateKey(it.Key())
		if err != nil || len(parts) != 2 {
			return 0, nil, fmt.Errorf("user %.80q: %w", it.Key(), ErrCorrupt)
		}
		lines[parts[1]] = string(it.Value())
	}
	if err := it.Err(); err != nil {
		return 0, nil, fmt.Errorf("users: %w", err)
	}
	return version, lines, nil
}
