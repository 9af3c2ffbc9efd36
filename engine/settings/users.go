package settings

import (
	"fmt"
	"maps"
	"slices"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/storage"
)

// Bounds of the users in the store.
const (
	UsersMax      = 10_000
	UserLineMax   = 64 << 10 // bytes
	UsersBytesMax = 16 << 20 // of all lines
)

// Users are names, and lines whose meaning the package does not know. Where several nodes are one broker, its users
// are records of the store; they come into force where the nodes read them, see storage.ReadUsers.
type Users struct {
	lines   map[string]string // by name
	bytes   int
	version uint64 // of the newest change; 0: users are not in the store
}

// Line returns the line of a user, "" if there is none.
func (u *Users) Line(name string) string { return u.lines[name] }

// Names returns the names of all users, in order.
func (u *Users) Names() []string { return slices.Sorted(maps.Keys(u.lines)) }

// Set sets the lines of users, all of them or none, and writes them; an empty line deletes a user. What was stored
// beyond the bounds may stay, and not grow.
func (u *Users) Set(lines map[string]string, b *storage.Batch) error {
	n, bytes := len(u.lines), u.bytes
	for name, line := range lines {
		old, known := u.lines[name]
		if len(line) > UserLineMax {
			return fmt.Errorf("%w: the rules of user %.64q have %d bytes, the limit is %d", refusals.ErrTooBig, name, len(line), UserLineMax)
		}
		bytes += len(line) - len(old)
		switch {
		case line != "" && !known:
			n++
		case line == "" && known:
			n--
		}
	}
	if n > max(UsersMax, len(u.lines)) || bytes > max(UsersBytesMax, u.bytes) {
		return fmt.Errorf("%w: there would be %s with rules of %d bytes, the limits are %d and %d",
			refusals.ErrTooBig, errtext.Amount(n, "user"), bytes, UsersMax, UsersBytesMax)
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if line := lines[name]; line != "" {
			u.lines[name] = line
			b.Put(storage.State, storage.UserKey(name), []byte(line))
		} else {
			delete(u.lines, name)
			b.Delete(storage.State, storage.UserKey(name))
		}
	}
	u.bytes = bytes
	u.version++
	storage.PutUsersVersion(b, u.version)
	return nil
}

// ReadUsers reads the users of a store.
func ReadUsers(store storage.UserReader) (u Users, err error) {
	u.version, u.lines, err = storage.ReadUsers(store, 0)
	if u.lines == nil {
		u.lines = map[string]string{}
	}
	for _, line := range u.lines {
		u.bytes += len(line)
	}
	return u, err
}
