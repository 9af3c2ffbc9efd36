// Package scripts compiles the sources of hooks, and has their histories: of each hook of a queue the last sources that were
// loaded, each once, in the order of their last loading. The sources are in the store only; memory has what orders and
// names them. What is loaded and what is forgotten is written into the batch that is given. The package knows no queues.
package scripts

import (
	"errors"
	"slices"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// Most is how many sources a history has.
const Most = 10

// Hook names a hook: a queue, and the kind of the hook.
type Hook struct{ Queue, Kind string }

// Version is a source in a history. It is not changed, so any goroutine may read it.
type Version struct {
	of            Hook
	no            uint64 // in Table.all
	Version, User string
	At            int64 // when it was loaded last, in Unix nanoseconds; 0: before there was a history
	bytes         int   // of its record
}

// Key returns the key of its record.
func (v *Version) Key() []byte {
	return storage.AppendStateKey(nil, storage.StateScript, v.of.Queue, v.of.Kind, string(storage.EncodeUint(v.no)))
}

// Table has the histories of all hooks. The zero value has none.
type Table struct {
	all   intrusive.Roster[Version] // by age
	of    map[Hook][]*Version       // the newest source last
	bytes int                       // of all records
}

// Bytes returns the bytes of all records.
func (t *Table) Bytes() int { return t.bytes }

// Of returns the history of a hook, the newest source last. The list must not be changed.
func (t *Table) Of(h Hook) []*Version { return t.of[h] }

// Get returns a version of the history of a hook, nil if it is not there.
func (t *Table) Get(h Hook, version string) *Version {
	for _, v := range t.of[h] {
		if v.Version == version {
			return v
		}
	}
	return nil
}

// Keep adds a source to a history as the newest, and returns the versions that are forgotten for it: an older one of the
// same source, what exceeds Most, and the oldest of all hooks while their records have more than most bytes together. The
// record of the new one has n bytes.
func (t *Table) Keep(h Hook, rec *storage.Script, n, most int) (v *Version, forgotten []*Version) {
	forget := func(old *Version) {
		t.remove(old)
		forgotten = append(forgotten, old)
	}
	if old := t.Get(h, rec.Version); old != nil {
		forget(old)
	}
	v = t.add(h, rec, n)
	for len(t.of[h]) > Most {
		forget(t.of[h][0])
	}
	for oldest := t.oldest(); t.bytes > most && oldest != v; oldest = t.oldest() {
		forget(oldest)
	}
	return v, forgotten
}

// Restore adds a source with its number, which is greater than those before.
func (t *Table) Restore(h Hook, no uint64, rec *storage.Script, bytes int) error {
	if no <= t.all.Last() {
		return storage.ErrCorrupt
	}
	t.all.Skip(no - 1)
	t.add(h, rec, bytes)
	return nil
}

func (t *Table) add(h Hook, rec *storage.Script, bytes int) *Version {
	v := &Version{of: h, Version: rec.Version, User: rec.User, At: rec.LoadedAt, bytes: bytes}
	v.no = t.all.Add(v)
	t.bytes += bytes
	if t.of == nil {
		t.of = map[Hook][]*Version{}
	}
	t.of[h] = append(t.of[h], v)
	return v
}

// Forget removes the history of a hook, and returns what it had.
func (t *Table) Forget(h Hook) []*Version {
	list := t.of[h]
	for _, v := range list {
		t.remove(v)
	}
	return list
}

func (t *Table) remove(v *Version) {
	t.all.Remove(v.no)
	t.bytes -= v.bytes
	list := slices.DeleteFunc(slices.Clone(t.of[v.of]), func(o *Version) bool { return o == v })
	if len(list) == 0 {
		delete(t.of, v.of)
	} else {
		t.of[v.of] = list
	}
}

// oldest returns the version that was loaded before all others.
func (t *Table) oldest() (oldest *Version) {
	t.all.Walk(0, 1, func(v *Version) { oldest = v })
	return oldest
}

// Read returns the sources of versions; "": it is not in the store any more.
func Read(store storage.Reader, versions []*Version) ([]string, error) {
	sources := make([]string, len(versions))
	for i, v := range versions {
		value, err := store.Get(storage.State, v.Key())
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		var rec storage.Script
		if err == nil {
			err = rec.Decode(value)
		}
		if err != nil {
			return nil, err
		}
		sources[i] = rec.Source
	}
	return sources, nil
}

// Source returns a source of the history of a hook; "": there is none of that version.
func Source(store storage.Reader, h Hook, version string) (string, error) {
	prefix := storage.AppendStateKey(nil, storage.StateScript, h.Queue, h.Kind)
	it := store.Scan(storage.State, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		var rec storage.Script
		if err := rec.Decode(it.Value()); err != nil {
			return "", err
		}
		if rec.Version == version {
			return rec.Source, nil
		}
	}
	return "", it.Err()
}

// Report takes the number of an invariant and a description of what breaks it.
type Report func(no int, format string, args ...any)

// Check verifies invariant 25. exists reports whether there is a queue of a name.
func (t *Table) Check(exists func(queue string) bool, bad Report) {
	n, bytes := 0, 0
	for h, list := range t.of {
		versions, last := map[string]bool{}, uint64(0)
		for _, v := range list {
			n, bytes = n+1, bytes+v.bytes
			if v.of != h || v.no <= last || versions[v.Version] {
				bad(25, "queue %q: version %s of a hook is not where it should be", h.Queue, v.Version)
			}
			versions[v.Version], last = true, v.no
		}
		if len(list) == 0 || len(list) > Most || !exists(h.Queue) {
			bad(25, "queue %q: %d versions of a hook", h.Queue, len(list))
		}
	}
	for range t.all.All() {
		n--
	}
	if n != 0 || bytes != t.bytes {
		bad(25, "%d versions of hooks are missing, their %d bytes are counted as %d", n, bytes, t.bytes)
	}
}
