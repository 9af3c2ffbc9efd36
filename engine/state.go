package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/faisca/fila/storage"
)

// The kinds of records in storage.State: the first part of the key.
const (
	stateEpoch     = "epoch"      // number of starts; makes delivery numbers unique
	stateIDs       = "ids"        // time that no id has reached, in nanoseconds
	stateNextQueue = "next_queue" // number of the next queue
	stateNow       = "now"        // time of the newest batch, see Config.KeepTime
	stateKey       = "key"        // then queue number and fairness key: storage.Key
	stateConfig    = "config"     // then name: a value of the runtime configuration
	stateThrottle  = "throttle"   // then throttle key: storage.Throttle
	stateCron      = "cron"       // then name: storage.Cron
	// stateScript is followed by a queue's name, a hook and a number: storage.Script.
	stateScript = "script"
	// stateTopic is followed by a topic and a queue, by their names: storage.Binding.
	stateTopic = "topic"
	// stateReplica is storage.ReplicaKey: written by the machine of a node, never by the engine.
	stateReplica = "replica"
	// stateUser and stateUsers are storage.UserKey and storage.UsersVersionKey.
	stateUser, stateUsers = "acl", "acl_version"
	stateLearner          = "learner" // storage.LearnerKey
	// stateCronMessage is followed by the name of a recurring message; the value is its
	// content, a storage.Message.
	stateCronMessage = "cron_message"
)

// encodeUint and decodeUint are the format of numbers: 8 bytes, big-endian.
func encodeUint(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func decodeUint(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("a number of %d bytes: %w", len(b), storage.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(b), nil
}

// CheckState verifies a record of storage.State: it is of a known kind, and key and value can be
// decoded. needs is the key of a record that has to be there with it; nil: none.
func CheckState(key, value []byte) (needs []byte, err error) {
	parts, err := storage.ParseStateKey(key)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, errors.New("a piece of state without a name")
	}
	kind, ok := stateKinds()[parts[0]]
	if !ok {
		return nil, fmt.Errorf("a piece of state of an unknown kind %.40q", parts[0])
	}
	if len(parts) != kind.parts || parts[0] == stateKey && len(parts[1]) != 4 {
		return nil, fmt.Errorf("the key of a %s: %w", parts[0], storage.ErrCorrupt)
	}
	if err := kind.decode(value); err != nil {
		return nil, err
	}
	if parts[0] == stateCron {
		return storage.AppendStateKey(nil, stateCronMessage, parts[1]), nil
	}
	return nil, nil
}

// BindingOf returns the topic and the queue of a binding by its key in storage.State; ok is false
// if it is the key of something else.
func BindingOf(key []byte) (topic, queue string, ok bool) {
	parts, err := storage.ParseStateKey(key)
	if err != nil || len(parts) != 3 || parts[0] != stateTopic {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// stateKind is the form of a kind of records in storage.State.
type stateKind struct {
	parts  int // of the key
	decode func(value []byte) error
}

func stateKinds() map[string]stateKind {
	number := stateKind{1, func(b []byte) error { _, err := decodeUint(b); return err }}
	return map[string]stateKind{
		stateEpoch: number, stateIDs: number, stateNextQueue: number, stateNow: number, stateUsers: number,
		stateKey:         {3, func(b []byte) error { return new(storage.Key).Decode(b) }},
		stateConfig:      {2, func([]byte) error { return nil }},
		stateLearner:     {2, func([]byte) error { return nil }},
		stateUser:        {2, func([]byte) error { return nil }},
		stateThrottle:    {2, func(b []byte) error { return new(storage.Throttle).Decode(b) }},
		stateCron:        {2, func(b []byte) error { return new(storage.Cron).Decode(b) }},
		stateReplica:     {1, func(b []byte) error { return new(storage.Replica).Decode(b) }},
		stateTopic:       {3, func(b []byte) error { return new(storage.Binding).Decode(b) }},
		stateScript:      {4, func(b []byte) error { return new(storage.Script).Decode(b) }},
		stateCronMessage: {2, func(b []byte) error { return new(storage.Message).Decode(b) }},
	}
}

// CheckLedger verifies a record of storage.Ledger, whose budget need not exist.
func CheckLedger(key, value []byte) error {
	if _, err := storage.ParseLedgerKey(key); err != nil {
		return err
	}
	return new(storage.LedgerEntry).Decode(value)
}
