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
	stateKey       = "key"        // then queue number and fairness key: storage.Key
	stateConfig    = "config"     // then name: a value of the runtime configuration
	stateThrottle  = "throttle"   // then throttle key: storage.Throttle
	stateCron      = "cron"       // then name: storage.Cron
	// stateCronMessage is followed by a name: what a recurring message holds, a
	// storage.Message.
	stateCronMessage = "cron_message"
)

func encodeUint(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func decodeUint(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("a number of %d bytes: %w", len(b), storage.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(b), nil
}

// stateKeysUnder is what the keys of the key settings start with that are kept under the
// number of a queue.
func stateKeysUnder(no uint32) []byte {
	return storage.AppendStateKey(nil, stateKey, string(binary.BigEndian.AppendUint32(nil, no)))
}

func stateKeyUnder(no uint32, key string) []byte {
	return storage.AppendStateKey(nil, stateKey, string(binary.BigEndian.AppendUint32(nil, no)), key)
}
