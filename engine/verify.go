package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/faisca/fila/storage"
)

// This file holds what is on disk to what the engine writes, offline: every key and
// every value is read, and every reference is followed. What may dangle is said where
// each family is verified.

// VerifyStore is what there is to verify.
type VerifyStore interface {
	Get(f storage.Family, key []byte) ([]byte, error)
	Scan(f storage.Family, from, to []byte) storage.Iterator
}

// Finding is something that should not be. Without it the store would be in order.
type Finding struct {
	Family storage.Family
	Key    []byte // empty: it is about the whole family
	What   string // one line
	// Unreadable says that what comes after Key in the family could not be read.
	Unreadable bool
	// Orphans is not 0 in a finding about messages, so many, of a queue that is not
	// there: Queue is its number.
	Orphans int64
	Queue   uint32
}

// Verified is what a store holds.
type Verified struct {
	Records map[storage.Family]int64
	Queues  []VerifiedQueue // by name
}

// VerifiedQueue is what a queue holds.
type VerifiedQueue struct {
	Name                               string
	Number                             uint32
	Messages, Leased, Delayed, Retried int64
}

// Verify reads a whole store, which nobody else may change meanwhile. It tells of
// each record that it has read, and of whatever is wrong; it returns an error only if
// the store has no format that this Fila knows.
func Verify(store VerifyStore, report func(Finding), read func()) (Verified, error) {
	v := &verifier{
		store: store, report: report, read: read, queues: map[uint32]*VerifiedQueue{}, orphans: map[uint32]int64{},
		records: map[storage.Family]int64{},
	}
	err := storage.CheckFormat(store.Get)
	switch {
	case errors.Is(err, storage.ErrFormat):
		return Verified{}, err
	case err != nil:
		v.found(storage.Default, nil, "the format version cannot be read: "+err.Error())
	}
	for _, f := range v.order() {
		v.family(f)
	}
	for _, no := range slices.Sorted(maps.Keys(v.orphans)) {
		report(Finding{
			Family: storage.Messages, Key: storage.AppendQueuePrefix(nil, no), Queue: no, Orphans: v.orphans[no],
			What: fmt.Sprintf("%d messages are of the queue with the number %d, which does not exist", v.orphans[no], no),
		})
	}
	out := Verified{Records: v.records}
	for _, q := range v.queues {
		out.Queues = append(out.Queues, *q)
	}
	slices.SortFunc(out.Queues, func(a, b VerifiedQueue) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out, nil
}

type verifier struct {
	store   VerifyStore
	report  func(Finding)
	read    func()
	records map[storage.Family]int64
	queues  map[uint32]*VerifiedQueue
	orphans map[uint32]int64 // messages by the number of a queue that is not there

	messages storage.Iterator // to see whether a message exists
	lease    leaseSeen
}

// leaseSeen is the lease record before the one that is looked at.
type leaseSeen struct {
	message MessageKey
	key     []byte
}

// MessageKey is storage's.
type MessageKey = storage.MessageKey

// order is that of the families: queues come before what refers to them.
func (v *verifier) order() []storage.Family {
	all := []storage.Family{storage.Queues}
	for _, f := range storage.Families() {
		if f != storage.Queues {
			all = append(all, f)
		}
	}
	return all
}

func (v *verifier) found(f storage.Family, key []byte, what string) {
	v.report(Finding{Family: f, Key: bytes.Clone(key), What: what})
}

// family reads a family. It ends at the first place that cannot be read.
func (v *verifier) family(f storage.Family) {
	v.messages = v.store.Scan(storage.Messages, nil, nil)
	defer func() { v.messages.Close() }() // exists may have made it anew
	it := v.store.Scan(f, nil, nil)
	defer it.Close()
	check := v.check(f)
	var last []byte
	for ok := it.Seek(nil); ok; ok = it.Next() {
		last = append(last[:0], it.Key()...)
		v.records[f]++
		v.read()
		if err := check(last, it.Value()); err != nil {
			v.found(f, last, err.Error())
		}
	}
	if err := it.Err(); err != nil {
		v.report(Finding{Family: f, Key: bytes.Clone(last), What: "what follows cannot be read: " + err.Error(), Unreadable: true})
	}
}

func (v *verifier) check(f storage.Family) func(key, value []byte) error {
	switch f {
	case storage.Default:
		return v.checkDefault
	case storage.Messages:
		return v.checkMessage
	case storage.Leases:
		return v.checkLease
	case storage.Attempts:
		return v.checkAttempt
	case storage.Scheduled:
		return v.checkScheduled
	case storage.Queues:
		return v.checkQueue
	case storage.State:
		return v.checkState
	case storage.Dedup:
		return v.checkDedup
	case storage.Expiries:
		return v.checkExpiry
	default:
		return func(_, _ []byte) error { return fmt.Errorf("family %s is not known", f) }
	}
}

// checkDefault: there is the format, which CheckFormat has read.
func (v *verifier) checkDefault(key, _ []byte) error {
	if string(key) != "format" {
		return errors.New("a record that no Fila writes")
	}
	return nil
}

// checkMessage: nothing may dangle. An id says the rank and the key once more.
func (v *verifier) checkMessage(key, value []byte) error {
	mk, err := storage.ParseMessageKey(key)
	if err != nil {
		return err
	}
	if err := checkMessageKey(mk); err != nil {
		return err
	}
	if q := v.queues[mk.Queue]; q != nil {
		q.Messages++
	} else {
		v.orphans[mk.Queue]++
	}
	var m storage.Message
	return m.Decode(value)
}

func checkMessageKey(mk MessageKey) error {
	switch {
	case mk.Rank > priorityMax:
		return fmt.Errorf("message %s has the rank %d", mk.ID, mk.Rank)
	case idRank(mk.ID) != mk.Rank || idKeyHash(mk.ID) != keyHash(mk.Key):
		return fmt.Errorf("message %s has an id that does not belong to its key %.80q", mk.ID, mk.Key)
	}
	return nil
}

// exists tells whether there is a message. Where the store cannot tell it is taken to
// be there: that it cannot is a finding of its own.
func (v *verifier) exists(mk MessageKey) bool {
	key := mk.Append(nil)
	if v.messages.Err() != nil {
		v.messages.Close()
		v.messages = v.store.Scan(storage.Messages, nil, nil)
	}
	if !v.messages.Seek(key) {
		return v.messages.Err() != nil
	}
	return bytes.Equal(v.messages.Key(), key)
}

func (v *verifier) mustExist(mk MessageKey, what string) error {
	if !v.exists(mk) {
		return fmt.Errorf("%s of message %s, which does not exist", what, mk.ID)
	}
	return nil
}

// checkLease: its message is there, and it is the message's only one.
func (v *verifier) checkLease(key, value []byte) error {
	mk, _, err := storage.ParseLeaseKey(key)
	if err != nil {
		return err
	}
	var rec storage.Lease
	if err := rec.Decode(value); err != nil {
		return err
	}
	if err := v.mustExist(mk, "a lease"); err != nil {
		return err
	}
	if v.lease.key != nil && v.lease.message == mk {
		v.found(storage.Leases, v.lease.key, fmt.Sprintf("message %s is leased a second time", mk.ID))
	} else if q := v.queues[mk.Queue]; q != nil {
		q.Leased++
	}
	v.lease = leaseSeen{message: mk, key: bytes.Clone(key)}
	return nil
}

// checkAttempt: its message is there.
func (v *verifier) checkAttempt(key, value []byte) error {
	mk, err := storage.ParseMessageKey(key)
	if err != nil {
		return err
	}
	var rec storage.Attempt
	if err := rec.Decode(value); err != nil {
		return err
	}
	if err := v.mustExist(mk, "an attempt"); err != nil {
		return err
	}
	if q := v.queues[mk.Queue]; q != nil {
		q.Retried++
	}
	return nil
}

// checkScheduled: its message is there, unless its queue is not: the entries of a
// queue number that was dropped stay until they are due.
func (v *verifier) checkScheduled(key, value []byte) error {
	_, mk, err := storage.ParseScheduledKey(key)
	if err != nil {
		return err
	}
	if len(value) != 0 {
		return fmt.Errorf("a due time of message %s has a value of %d bytes", mk.ID, len(value))
	}
	q := v.queues[mk.Queue]
	if q == nil {
		return nil
	}
	if err := v.mustExist(mk, "a due time"); err != nil {
		return err
	}
	q.Delayed++
	return nil
}

// checkExpiry: as with due times. That a message is gone before the end of its life
// is as it should be.
func (v *verifier) checkExpiry(key, _ []byte) error {
	_, _, err := storage.ParseScheduledKey(key)
	return err
}

// checkQueue: numbers are unique. A dead-letter queue may be missing.
func (v *verifier) checkQueue(key, value []byte) error {
	var set storage.Queue
	if err := set.Decode(value); err != nil {
		return err
	}
	switch {
	case len(key) == 0 || set.Number == 0:
		return errors.New("a queue without a name or a number")
	case v.queues[set.Number] != nil:
		return fmt.Errorf("queue %.80q has the number %d of queue %.80q", key, set.Number, v.queues[set.Number].Name)
	}
	v.queues[set.Number] = &VerifiedQueue{Name: string(key), Number: set.Number}
	return nil
}

// checkState: every record is of a kind that the engine writes. Settings of a fairness
// key, values and throttles refer to nothing that has to be there, a recurring message
// to what it holds.
func (v *verifier) checkState(key, value []byte) error {
	parts, err := storage.ParseStateKey(key)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return errors.New("a piece of state without a name")
	}
	kind, ok := stateKinds()[parts[0]]
	if !ok {
		return fmt.Errorf("a piece of state of an unknown kind %.40q", parts[0])
	}
	if len(parts) != kind.parts || parts[0] == stateKey && len(parts[1]) != 4 {
		return fmt.Errorf("the key of a %s: %w", parts[0], storage.ErrCorrupt)
	}
	if err := kind.decode(value); err != nil {
		return err
	}
	if parts[0] == stateCron {
		if _, err := v.store.Get(storage.State, storage.AppendStateKey(nil, stateCronMessage, parts[1])); errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("recurring message %.80q has nothing to send", parts[1])
		}
	}
	return nil
}

// stateKind says what a piece of state looks like.
type stateKind struct {
	parts  int // of its key
	decode func(value []byte) error
}

func stateKinds() map[string]stateKind {
	number := stateKind{1, func(b []byte) error { _, err := decodeUint(b); return err }}
	return map[string]stateKind{
		stateEpoch: number, stateIDs: number, stateNextQueue: number,
		stateKey:         {3, func(b []byte) error { return new(storage.Key).Decode(b) }},
		stateConfig:      {2, func([]byte) error { return nil }},
		stateThrottle:    {2, func(b []byte) error { return new(storage.Throttle).Decode(b) }},
		stateCron:        {2, func(b []byte) error { return new(storage.Cron).Decode(b) }},
		stateCronMessage: {2, func(b []byte) error { return new(storage.Message).Decode(b) }},
	}
}

// checkDedup: its queue is there. Its message need not be.
func (v *verifier) checkDedup(key, value []byte) error {
	no, _, _, err := storage.ParseDedupKey(key)
	if err != nil {
		return err
	}
	if v.queues[no] == nil {
		return fmt.Errorf("a deduplication id of the queue with the number %d, which does not exist", no)
	}
	return new(storage.DedupEntry).Decode(value)
}

// repairRounds bounds how often a store is looked at: what is dropped may be what
// another record refers to.
const repairRounds = 4

// repairBatchBytes is the size of a batch of what is dropped.
const repairBatchBytes = 4 << 20

// Repair puts a store in order that nobody uses. Records that are damaged, and those that
// refer to what is not there, are dropped. Messages without a queue get one, of a name
// that tells; where queuesWhole says that no record of a queue can be missing, their queue
// was deleted or purged, and they are dropped. It says what it has done.
func Repair(store Store, queuesWhole bool, log func(what string)) error {
	for range repairRounds {
		var b storage.Batch
		var failed error
		found := 0
		_, err := Verify(store, func(f Finding) {
			found++
			queuesWhole = queuesWhole && f.Family != storage.Queues // which are verified first
			log(f.repair(&b, queuesWhole))
			if b.Size() >= repairBatchBytes && failed == nil {
				failed = store.Commit(&b, false)
				b.Reset()
			}
		}, func() {})
		if err == nil && failed == nil {
			failed = store.Commit(&b, true)
		}
		if err = errJoin(err, failed); err != nil || found == 0 {
			return err
		}
	}
	return nil
}

// mend adds to a batch what undoes a finding, and says what that is.
func (f *Finding) repair(b *storage.Batch, queuesWhole bool) string {
	switch {
	case f.Unreadable || f.Key == nil:
		return "could not repair: " + f.What
	case f.Orphans > 0 && queuesWhole:
		b.DeleteRange(storage.Messages, f.Key, storage.After(f.Key))
		return fmt.Sprintf("dropped %d messages of the queue with the number %d, which was deleted or purged", f.Orphans, f.Queue)
	case f.Orphans > 0:
		name := fmt.Sprintf("recovered.%d", f.Queue)
		c := DefaultConfig()
		set := storage.Queue{
			Number: f.Queue, VisibilityMs: uint64(c.Visibility.Milliseconds()), BackoffMs: uint64(c.Backoff.Milliseconds()), //nolint:gosec // positive
			MaxBackoffMs: uint64(c.MaxBackoff.Milliseconds()), //nolint:gosec // positive
			MaxAttempts:  math.MaxUint32,                      // there is no dead-letter queue, so nothing may die
		}
		b.Put(storage.Queues, []byte(name), set.Append(nil))
		return fmt.Sprintf("made the queue %s for %d messages whose queue is lost", name, f.Orphans)
	default:
		b.Delete(f.Family, f.Key)
		return fmt.Sprintf("dropped a record of family %s, key %x: %s", f.Family, f.Key, f.What)
	}
}

// Restored makes a store that was a backup one whose receipts nobody holds: the broker
// that it was taken from has gone on, and has given out delivery numbers that this one
// would give out again. Starts are counted on from the time in seconds, which is far
// above any count of starts, and above all times of earlier restores.
func Restored(store Store, seconds int64) error {
	epoch := uint64(0)
	b, err := store.Get(storage.State, storage.AppendStateKey(nil, stateEpoch))
	if err == nil {
		epoch, err = decodeUint(b)
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("read the number of starts: %w", err)
	}
	var batch storage.Batch
	batch.Put(storage.State, storage.AppendStateKey(nil, stateEpoch), encodeUint(max(epoch+1, uint64(seconds)))) //nolint:gosec // after 1970
	if err := store.Commit(&batch, true); err != nil {
		return fmt.Errorf("write the number of starts: %w", err)
	}
	return nil
}
