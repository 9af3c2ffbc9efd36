package verify

import (
	"bytes"
	"fmt"

	"github.com/faisca/fila/storage"
)

// checkLease: the message exists, has the same unique id, and has no other lease. In an ordered
// queue, its key has none either.
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
	if unique := v.uniqueIDOf(mk); unique != rec.Unique {
		return fmt.Errorf("a lease of message %s with the unique id %.80q, that of the message is %.80q", mk.ID, rec.Unique, unique)
	}
	last, q := &v.lease, v.queues[mk.Queue]
	switch {
	case last.key != nil && last.message == mk:
		v.found(storage.Leases, last.key, fmt.Sprintf("message %s is leased a second time", mk.ID))
	case q != nil && q.ordered && last.key != nil && last.message.Queue == mk.Queue && last.message.Key == mk.Key:
		return fmt.Errorf("message %s is leased, and so is message %s of its key in an ordered queue", mk.ID, last.message.ID)
	case q != nil && rec.Retrying:
		q.Delayed++
	case q != nil:
		q.Leased++
	}
	v.lease = leaseSeen{message: mk, key: bytes.Clone(key)}
	return nil
}

// checkAttempt: the message exists.
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
