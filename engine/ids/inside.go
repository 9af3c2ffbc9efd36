package ids

import (
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/storage"
)

// Inside lets tests of the engine break the ids. Nothing but tests may use it: internal/tidy verifies that.
type Inside struct{ t *Table }

// Inside returns what tests may break of a table.
func (t *Table) Inside() Inside { return Inside{t} }

// ForgetRecent forgets the deduplication ids of recent batches.
func (p Inside) ForgetRecent() { p.t.recent = recent.Table[key, storage.DedupEntry]{} }

// Stale reports whether a unique id has to be looked up, again.
func (p Inside) Stale(l *Lookup) bool { return p.t.taken.Stale(l) }
