// Package writes is the open batch of a turn, as the rooms of the engine see it.
package writes

import "github.com/faisca/fila/storage"

// Batch is the open batch: a room puts its records into it, and needs its number and the time of the turn for what it
// keeps in memory until the batch is committed.
type Batch struct {
	*storage.Batch
	Number uint64
	Now    int64 // Unix nanoseconds
}
