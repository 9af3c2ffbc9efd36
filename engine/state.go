package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/faisca/fila/storage"
)

// What the engine keeps in storage.State, by the first part of the key.
const (
	stateEpoch     = "epoch"      // number of starts: no delivery number is given twice
	stateIDs       = "ids"        // nanoseconds that no id has reached yet
	stateNextQueue = "next_queue" // number of the next queue
	stateWeight    = "weight"     // then queue number and fairness key: a weight other than 1
)

func encodeUint(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func decodeUint(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("a number of %d bytes: %w", len(b), storage.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(b), nil
}

func (c *core) weightKey(k *fairKey) []byte {
	return storage.AppendStateKey(nil, stateWeight, string(binary.BigEndian.AppendUint32(nil, k.queue.no)), k.name)
}
