// Package verify checks the records of a store that no broker uses, and repairs them. What a record
// means, storage and the engine say (storage.CheckState, engine.CheckBudget and others).
//
// Records reads every record, decodes key and value, and follows every reference. Repair fixes the
// findings. References, by family: a lease and an attempt refer to their message; a due time to its
// message, if the queue exists; a deduplication id, a result and a binding to their queue; a unique id
// and its message to each other; a message to its body; a group, its message and its counts to each other, and the counts to
// the messages that are members. A message without a queue is an orphan. Expiries,
// settings of keys and dead-letter queues may dangle, and bodies until a broker sweeps them.
package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Source is what Records needs of a store.
type Source interface {
	Get(f storage.Family, key []byte) ([]byte, error)
	Scan(f storage.Family, from, to []byte) storage.Iterator
}

// Finding is an error in a store. A consistent store has none.
type Finding struct {
	Family storage.Family
	Key    []byte // of the record; empty: the whole family
	What   string // the error, in one line
	// Unreadable says that the family could not be read after Key.
	Unreadable bool
	// Orphans is the number of messages under Queue, a queue number without a queue; 0 in
	// all other findings.
	Orphans int64
	Queue   uint32

	mend func(b *storage.Batch) string // repairs it and returns what it did; nil: the record is dropped
}

// Contents is the contents of a store.
type Contents struct {
	Records map[storage.Family]int64
	Queues  []Queue // by name
	// Digest is the SHA-256 of all records that could be read, in hexadecimal. Stores with the
	// same records have the same digest, whatever their files look like.
	Digest string
}

// Queue is the contents of a queue, in numbers of messages.
type Queue struct {
	Name                               string
	Number                             uint32
	Messages, Leased, Delayed, Retried int64

	ordered bool
}

// Records checks a whole store, which nothing may change meanwhile. It calls read for each
// record and report for each finding. The error is storage.ErrFormat if the store has a
// format that this version does not know; all other errors are findings.
func Records(store Source, report func(Finding), read func()) (Contents, error) {
	v := &verifier{
		store: store, report: report, read: read, queues: map[uint32]*Queue{}, orphans: map[uint32]int64{},
		records: map[storage.Family]int64{}, digest: sha256.New(),
	}
	version, err := storage.FormatOf(store.Get)
	switch {
	case errors.Is(err, storage.ErrFormat):
		return Contents{}, err
	case err != nil:
		v.found(storage.Default, nil, "the format version cannot be read: "+err.Error())
	default:
		v.checkReplica(version)
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
	out := Contents{Records: v.records, Digest: hex.EncodeToString(v.digest.Sum(nil))}
	for _, q := range v.queues {
		out.Queues = append(out.Queues, *q)
	}
	slices.SortFunc(out.Queues, func(a, b Queue) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out, nil
}

type verifier struct {
	store   Source
	report  func(Finding)
	read    func()
	records map[storage.Family]int64
	queues  map[uint32]*Queue
	orphans map[uint32]int64 // messages by a queue number without a queue
	digest  hash.Hash

	members  map[memberOf]groupMembers // that the messages say
	unnamed  map[storage.ID][]string   // messages that the holders of their body do not name
	messages storage.Iterator          // for exists
	lease    leaseSeen
}

// leaseSeen is the previous lease record.
type leaseSeen struct {
	message storage.MessageKey
	key     []byte
}

// order returns the families: queues first, as the others refer to them.
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

// family checks the records of a family, up to the first place that cannot be read.
func (v *verifier) family(f storage.Family) {
	v.messages = v.store.Scan(storage.Messages, nil, nil)
	defer func() { v.messages.Close() }() // exists may have replaced it
	it := v.store.Scan(f, nil, nil)
	defer it.Close()
	check := v.check(f)
	var last []byte
	for ok := it.Seek(nil); ok; ok = it.Next() {
		last = append(last[:0], it.Key()...)
		v.records[f]++
		v.read()
		v.add(f, last, it.Value())
		if err := check(last, it.Value()); err != nil {
			v.found(f, last, err.Error())
		}
	}
	switch f { //nolint:exhaustive // the others need nothing more
	case storage.Messages:
		v.reportUnnamed()
	case storage.State:
		v.reportUncounted()
	}
	if err := it.Err(); err != nil {
		v.report(Finding{Family: f, Key: bytes.Clone(last), What: "what follows cannot be read: " + err.Error(), Unreadable: true})
	}
}

// add adds a record to the digest.
func (v *verifier) add(f storage.Family, key, value []byte) {
	var head [9]byte
	head[0] = byte(f)
	binary.BigEndian.PutUint32(head[1:], uint32(len(key)))
	binary.BigEndian.PutUint32(head[5:], uint32(len(value)))
	for _, b := range [][]byte{head[:], key, value} {
		_, _ = v.digest.Write(b) // never fails
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
	case storage.Results:
		return v.checkResult
	case storage.Bodies:
		return v.checkBody
	case storage.Expiries:
		return v.checkExpiry
	case storage.Signals:
		return storage.CheckSignal
	case storage.Budgets:
		return engine.CheckBudget
	case storage.Ledger:
		return storage.CheckLedger
	default:
		return func(_, _ []byte) error { return fmt.Errorf("family %s is not known", f) }
	}
}

// checkDefault: the only record is the format, which CheckFormat has read.
func (v *verifier) checkDefault(key, _ []byte) error {
	if string(key) != "format" {
		return errors.New("a record that no Fila writes")
	}
	return nil
}

// checkMessage: every reference must hold, and the id must belong to the key.
func (v *verifier) checkMessage(key, value []byte) error {
	mk, err := storage.ParseMessageKey(key)
	if err != nil {
		return err
	}
	if err := mk.Check(); err != nil {
		return err
	}
	q := v.queues[mk.Queue]
	if q != nil {
		q.Messages++
	} else {
		v.orphans[mk.Queue]++
	}
	var m storage.Message
	if err := m.Decode(value); err != nil {
		return err
	}
	if q != nil && v.ownsID(mk, &m) {
		v.checkUnique(mk, &m, key)
	}
	if q != nil {
		v.countMember(mk.Queue, &m)
	}
	return v.checkReference(mk, value, key)
}

// exists reports whether a message exists. If the store cannot be read, it is taken to
// exist: the read error is a finding of its own.
func (v *verifier) exists(mk storage.MessageKey) bool {
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

func (v *verifier) mustExist(mk storage.MessageKey, what string) error {
	if !v.exists(mk) {
		return fmt.Errorf("%s of message %s, which does not exist", what, mk.ID)
	}
	return nil
}

// checkScheduled: the message exists, if its queue does. Entries of a purged or deleted
// queue stay until they are due.
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
	if q.ordered {
		return fmt.Errorf("a due time of message %s, which is in an ordered queue", mk.ID)
	}
	q.Delayed++
	return nil
}

// checkExpiry: the message may be gone; its entry then stays until it is due.
func (v *verifier) checkExpiry(key, _ []byte) error {
	_, _, err := storage.ParseScheduledKey(key)
	return err
}

// checkQueue: numbers are unique. A dead-letter queue need not exist.
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
	v.queues[set.Number] = &Queue{Name: string(key), Number: set.Number, ordered: set.Values[queueset.Ordered] > 0}
	return nil
}

// checkState: every record has a known kind. A recurring message needs its content, a binding its
// queue; other kinds refer to nothing that must exist.
func (v *verifier) checkState(key, value []byte) error {
	needs, err := storage.CheckState(key, value)
	if err != nil {
		return err
	}
	if topic, queue, ok := storage.BindingOf(key); ok {
		if _, err := v.store.Get(storage.Queues, []byte(queue)); errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("topic %.80q is bound to queue %.80q, which does not exist", topic, queue)
		}
	}
	if needs == nil {
		return nil
	}
	if _, group, _, is := storage.GroupOf(key); is {
		return v.checkGroup(key, value, needs, group)
	}
	if _, err := v.store.Get(storage.State, needs); errors.Is(err, storage.ErrNotFound) {
		parts, _ := storage.ParseStateKey(key)
		return fmt.Errorf("recurring message %.80q has no content", parts[1])
	}
	return nil
}

// checkReplica: a store has the format version of a node if and only if it has a position in the
// replicated log.
func (v *verifier) checkReplica(version uint64) {
	_, err := v.store.Get(storage.State, storage.ReplicaKey())
	switch {
	case err == nil && version < storage.ReplicaFormatVersion:
		v.found(storage.State, storage.ReplicaKey(), "a position in a replicated log, in a store that is not that of a node")
	case errors.Is(err, storage.ErrNotFound) && version >= storage.ReplicaFormatVersion:
		v.found(storage.Default, nil, "the store is that of a node of a cluster, and has no position in the replicated log")
	}
}

// checkDedup: the queue exists. The message need not, unless the id is a unique one.
func (v *verifier) checkDedup(key, value []byte) error {
	no, gen, id, err := storage.ParseDedupKey(key)
	if err != nil {
		return err
	}
	if v.queues[no] == nil {
		return fmt.Errorf("a deduplication id of the queue with the number %d, which does not exist", no)
	}
	var e storage.DedupEntry
	if err := e.Decode(value); err != nil {
		return err
	}
	if gen == storage.UniqueGeneration {
		return v.checkOwner(no, id, &e)
	}
	return nil
}

// checkResult: the queue exists. The message does not, since it was acked; a record that names the fairness key says
// under which it was. The record of one that is there is dropped, so the message stays.
func (v *verifier) checkResult(key, value []byte) error {
	no, _, id, err := storage.ParseResultKey(key)
	if err != nil {
		return err
	}
	if v.queues[no] == nil {
		return fmt.Errorf("a result of the queue with the number %d, which does not exist", no)
	}
	var rec storage.Result
	if err := rec.Decode(value); err != nil || rec.Attempts == 0 {
		return err
	}
	mk := storage.MessageKey{Queue: no, Key: rec.Key, Rank: id.Rank(), ID: id}
	if err := mk.Check(); err != nil {
		return err
	}
	if _, err := v.store.Get(storage.Messages, mk.Append(nil)); err == nil {
		return fmt.Errorf("message %s is done, and it is still there", id)
	}
	return nil
}

// repairRounds bounds the repetitions of Records in Repair: a record that is dropped may be
// one that another refers to.
const repairRounds = 4

// repairBatchBytes is the size at which Repair commits a batch.
const repairBatchBytes = 4 << 20

// Repair makes a store consistent that is not in use. It drops damaged records and records
// with dangling references. Messages without a queue get the queue recovered.<number>; with
// queuesWhole, which says that no record of a queue can be missing, their queue was deleted
// or purged, and they are dropped. log is called with each action. The error is that of the
// store.
func Repair(store engine.Store, queuesWhole bool, log func(what string)) error {
	for range repairRounds {
		var b storage.Batch
		var failed error
		found := 0
		_, err := Records(store, func(f Finding) {
			found++
			queuesWhole = queuesWhole && f.Family != storage.Queues // queues are verified first
			log(f.repair(&b, queuesWhole))
			if b.Size() >= repairBatchBytes && failed == nil {
				failed = store.Commit(&b, false)
				b.Reset()
			}
		}, func() {})
		if err == nil && failed == nil {
			failed = store.Commit(&b, true)
		}
		if err = errors.Join(err, failed); err != nil || found == 0 {
			return err
		}
	}
	return nil
}

// repair adds the fix of a finding to a batch and returns a description.
func (f *Finding) repair(b *storage.Batch, queuesWhole bool) string {
	switch {
	case f.mend != nil:
		return f.mend(b)
	case f.Unreadable || f.Key == nil:
		return "could not repair: " + f.What
	case f.Orphans > 0 && queuesWhole:
		b.DeleteRange(storage.Messages, f.Key, storage.After(f.Key))
		return fmt.Sprintf("dropped %d messages of the queue with the number %d, which was deleted or purged", f.Orphans, f.Queue)
	case f.Orphans > 0:
		name := fmt.Sprintf("recovered.%d", f.Queue)
		c := engine.DefaultConfig()
		set := storage.Queue{Number: f.Queue}
		set.Values.SetDuration(queueset.Visibility, c.Visibility)
		set.Values.SetDuration(queueset.Backoff, c.Backoff)
		set.Values.SetDuration(queueset.MaxBackoff, c.MaxBackoff)
		set.Values[queueset.MaxAttempts] = math.MaxUint32 // without a dead-letter queue, dead messages would be dropped
		b.Put(storage.Queues, []byte(name), set.Append(nil))
		return fmt.Sprintf("created the queue %s for %d messages without a queue", name, f.Orphans)
	default:
		b.Delete(f.Family, f.Key)
		return fmt.Sprintf("dropped a record of family %s, key %x: %s", f.Family, f.Key, f.What)
	}
}
