package scripts

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/engine/internal/records"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// Name names a hook of a queue.
func Name(queue string, kind hook.Kind) Hook { return Hook{Queue: queue, Kind: kind.String()} }

// Loaded writes a hook that is loaded into a queue to its history. before is the hook that it replaces, if there is one: it goes
// first if there is no history yet, as it is older than histories are. All histories together have at most as many bytes as most says.
func (t *Table) Loaded(b *storage.Batch, queue string, h, before hook.Hook, user string, now int64, most int) {
	of := Name(queue, h.Kind())
	if before != nil && before.Version() != "" && len(t.of[of]) == 0 {
		t.write(b, of, before, "", 0, most)
	}
	t.write(b, of, h, user, now, most)
}

func (t *Table) write(b *storage.Batch, of Hook, h hook.Hook, user string, at int64, most int) {
	rec := storage.Script{Source: h.Source(), Version: h.Version(), LoadedAt: at, User: user}
	value := rec.Append(nil)
	v, forgotten := t.Keep(of, &rec, len(value), most)
	b.Put(storage.State, v.Key(), value)
	remove(b, forgotten)
}

// Drop forgets the histories of a queue and deletes them.
func (t *Table) Drop(b *storage.Batch, queue string) {
	for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
		remove(b, t.Forget(Name(queue, kind)))
	}
}

// remove deletes sources that histories have forgotten.
func remove(b *storage.Batch, forgotten []*Version) {
	for _, v := range forgotten {
		b.Delete(storage.State, v.Key())
	}
}

// ReadAll reads the histories of all hooks of a store. exists reports whether there is a queue of a name; stale is called
// with the parts of the keys of others, as an older release leaves them.
func (t *Table) ReadAll(store records.Scanner, exists func(queue string) bool, stale func(parts []string)) error {
	type version struct {
		of    Hook
		no    uint64
		rec   storage.Script
		bytes int
	}
	var all []version
	err := records.Each(store, "script", storage.StateScript, 3, func(name []string, value []byte) error {
		kind, known := hook.ParseKind(name[1])
		no, err := storage.DecodeUint([]byte(name[2]))
		if err != nil || !known || no == 0 {
			return storage.ErrCorrupt
		}
		v := version{of: Name(name[0], kind), no: no, bytes: len(value)}
		if err := v.rec.Decode(value); err != nil {
			return err
		}
		if !exists(name[0]) {
			stale(name)
			return nil
		}
		v.rec.Source = ""
		all = append(all, v)
		return nil
	})
	slices.SortFunc(all, func(a, b version) int { return cmp.Compare(a.no, b.no) })
	for i := range all {
		if err := t.Restore(all[i].of, all[i].no, &all[i].rec, all[i].bytes); err != nil {
			return fmt.Errorf("two scripts have the number %d: %w", all[i].no, err)
		}
	}
	return err
}

// Shown is a source in the history of a hook.
type Shown struct {
	Version  string    // that of the compiled hook
	LoadedAt time.Time // zero: before the broker kept histories
	User     string    // that loaded it; "": not known
	Current  bool      // it is the hook of the queue now
	Source   string
}

// History is a history with the sources that were read of it.
type History struct {
	versions []*Version
	sources  []string // by version; "": it is not in the store any more
}

// NewHistory returns a history of these versions, whose sources are to be read.
func NewHistory(versions []*Version) History { return History{versions: slices.Clone(versions)} }

// Read reads the sources. Any goroutine may call it, one at a time.
func (h *History) Read(store storage.Reader) (err error) {
	h.sources, err = Read(store, h.versions)
	return err
}

// Has reports whether the sources of these versions have been read. A
// source that is loaded, or loaded again, while a history is read has a record that the reader has
// not seen.
func (h *History) Has(versions []*Version) bool {
	return slices.Equal(h.versions, versions) && !slices.Contains(h.sources, "")
}

// Shown returns the sources, the newest first, without those that were forgotten before they were read. current is the
// version of the hook that the queue has.
func (h *History) Shown(current string) (list []Shown) {
	for i, v := range slices.Backward(h.versions) {
		if h.sources[i] == "" {
			continue
		}
		s := Shown{Version: v.Version, User: v.User, Current: v.Version == current, Source: h.sources[i]}
		if v.At != 0 {
			s.LoadedAt = time.Unix(0, v.At)
		}
		list = append(list, s)
	}
	return list
}
