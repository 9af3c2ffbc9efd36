package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The kinds of records in State that the engine writes: the first part of the key. Those of a
// cluster's stores are beside their records: ReplicaKey, UserKey, UsersVersionKey, LearnerKey.
const (
	StateEpoch           = "epoch"            // number of starts; makes delivery numbers unique
	StateIDs             = "ids"              // time that no id has reached, in nanoseconds
	StateNextQueue       = "next_queue"       // number of the next queue
	StateNow             = "now"              // time of the newest batch, where the engine keeps it
	StateKey             = "key"              // then queue number and fairness key: Key
	StateConfig          = "config"           // then name: a value of the runtime configuration
	StateThrottle        = "throttle"         // then throttle key: Throttle
	StateHold            = "hold"             // then throttle key: until when it is held, in Unix nanoseconds
	StateCron            = "cron"             // then name: Cron
	StateCronMessage     = "cron_message"     // then name of a recurring message: its content, a Message
	StateScript          = "script"           // then name of a queue, hook, and number: Script
	StateTopic           = "topic"            // then topic and queue, by their names: Binding
	StateAct             = "act"              // then number: Act
	StateHistory         = "history"          // then name of a queue, empty for all together: History
	StateThrottleHistory = "history_throttle" // then name: History
	StateKeyHistory      = "history_key"      // then queue, by its name, and fairness key: History

	StateGroup        = "group"         // then number of the group: Group
	StateGroupMessage = "group_message" // then number of the group: GroupMessage
	StateGroupCount   = "group_count"   // then numbers of group and queue: GroupCount
	StateGroupEnd     = "group_end"     // then generation and name of the group: GroupEnd
)

// EncodeUint returns a number as it is stored in State: 8 bytes, big-endian.
func EncodeUint(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// DecodeUint reads a number that EncodeUint made, or returns ErrCorrupt.
func DecodeUint(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("a number of %d bytes: %w", len(b), ErrCorrupt)
	}
	return binary.BigEndian.Uint64(b), nil
}

// CheckState verifies a record of State: it is of a known kind, and key and value can be
// decoded. needs is the key of a record that has to be there with it; nil: none.
func CheckState(key, value []byte) (needs []byte, err error) {
	parts, err := ParseStateKey(key)
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
	if len(parts) != kind.parts || parts[0] == StateKey && len(parts[1]) != 4 || parts[0] == StateAct && len(parts[1]) != 8 || badGroupKey(parts) {
		return nil, fmt.Errorf("the key of a %s: %w", parts[0], ErrCorrupt)
	}
	if err := kind.decode(value); err != nil {
		return nil, err
	}
	switch parts[0] {
	case StateCron:
		return AppendStateKey(nil, StateCronMessage, parts[1]), nil
	case StateGroup:
		return AppendStateKey(nil, StateGroupMessage, parts[1]), nil
	case StateGroupMessage, StateGroupCount:
		return AppendStateKey(nil, StateGroup, parts[1]), nil
	}
	return nil, nil
}

// BindingOf returns the topic and the queue of a binding by its key in State; ok is false
// if it is the key of something else.
func BindingOf(key []byte) (topic, queue string, ok bool) {
	parts, err := ParseStateKey(key)
	if err != nil || len(parts) != 3 || parts[0] != StateTopic {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// stateKind is the form of a kind of records in State.
type stateKind struct {
	parts  int // of the key
	decode func(value []byte) error
}

func stateKinds() map[string]stateKind {
	number := stateKind{1, func(b []byte) error { _, err := DecodeUint(b); return err }}
	return map[string]stateKind{
		StateEpoch: number, StateIDs: number, StateNextQueue: number, StateNow: number, stateUsersVersion: number,
		StateKey:             {3, func(b []byte) error { return new(Key).Decode(b) }},
		StateConfig:          {2, func([]byte) error { return nil }},
		stateLearner:         {2, func([]byte) error { return nil }},
		stateUser:            {2, func([]byte) error { return nil }},
		StateThrottle:        {2, func(b []byte) error { return new(Throttle).Decode(b) }},
		StateHold:            {2, number.decode},
		StateCron:            {2, func(b []byte) error { return new(Cron).Decode(b) }},
		stateReplica:         {1, func(b []byte) error { return new(Replica).Decode(b) }},
		StateTopic:           {3, func(b []byte) error { return new(Binding).Decode(b) }},
		StateScript:          {4, func(b []byte) error { return new(Script).Decode(b) }},
		StateCronMessage:     {2, func(b []byte) error { return new(Message).Decode(b) }},
		StateAct:             {2, func(b []byte) error { return new(Act).Decode(b) }},
		StateHistory:         {2, func(b []byte) error { return new(History).Decode(b) }},
		StateThrottleHistory: {2, func(b []byte) error { return new(History).Decode(b) }},
		StateKeyHistory:      {3, func(b []byte) error { return new(History).Decode(b) }},

		StateGroup:        {2, func(b []byte) error { return new(Group).Decode(b) }},
		StateGroupMessage: {2, checkGroupMessage},
		StateGroupCount:   {3, func(b []byte) error { return new(GroupCount).Decode(b) }},
		StateGroupEnd:     {3, func(b []byte) error { return new(GroupEnd).Decode(b) }},
	}
}

// CheckLedger verifies a record of Ledger, whose budget need not exist.
func CheckLedger(key, value []byte) error {
	if _, err := ParseLedgerKey(key); err != nil {
		return err
	}
	return new(LedgerEntry).Decode(value)
}
