package engine

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/body"
	"github.com/faisca/fila/storage"
)

// long is a payload that messages share.
func long(text string) []byte { return []byte(strings.Repeat(text+" ", bodyMin/len(text))) }

// bodyWorld has the topic t, to which queues are bound.
func bodyWorld(t *testing.T, queues ...string) *world {
	t.Helper()
	w := newWorld(t, nil)
	for _, name := range queues {
		w.queue(name, QueueOptions{})
		w.bind("t", name)
	}
	return w
}

func (w *world) mustPublish(payload []byte) {
	w.t.Helper()
	if _, err := w.publish(Publish{Topic: "t", Message: Enqueue{Payload: payload, Headers: []Header{{Name: []byte("kind"), Value: []byte("x")}}}}); err != nil {
		w.t.Fatal(err)
	}
}

// bodies returns the number of bodies and of their holders in the store.
func (w *world) bodies() (n, holders int) {
	w.t.Helper()
	it := w.store.Scan(storage.Bodies, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; ok = it.Next() {
		_, is, err := storage.ParseBodyKey(it.Key())
		if err != nil {
			w.t.Fatal(err)
		}
		if is {
			holders++
		} else {
			n++
		}
	}
	return n, holders
}

func (w *world) wantBodies(want int, when string) {
	w.t.Helper()
	if n, holders := w.bodies(); n != want || holders != want {
		w.t.Errorf("%s: %d bodies, %d holders, want %d", when, n, holders, want)
	}
}

func (w *world) ackWhole(queue string, payload []byte) {
	w.t.Helper()
	for _, d := range w.lease(queue, 100) {
		if !bytes.Equal(d.Payload(), payload) || len(d.Headers()) != 1 {
			w.t.Errorf("%s has a payload of %d bytes and the headers %s", queue, len(d.Payload()), d.Headers())
		}
		w.must(func(tx *Tx) error { _, err := tx.Ack(queue, []Receipt{d.Receipt}); return err })
	}
}

func TestALongPayloadOfAPublishIsStoredOnce(t *testing.T) {
	w := bodyWorld(t, "a", "b", "c")
	payload := long("once")
	w.mustPublish(payload)
	w.wantBodies(1, "after the publish")
	for _, queue := range []string{"a", "b", "c"} {
		for _, record := range w.recordsOf(queue) {
			if len(record) > 100 {
				t.Errorf("the record in %s has %d bytes", queue, len(record))
			}
		}
	}
	for i, queue := range []string{"b", "a", "c"} {
		w.ackWhole(queue, payload)
		w.wantBodies(map[bool]int{true: 0, false: 1}[i == 2], "after the ack in "+queue)
	}
}

func TestShortPayloadsAndSingleQueuesHaveNoBody(t *testing.T) {
	w := bodyWorld(t, "a", "b")
	w.mustPublish(long("x")[:bodyMin/2])
	w.wantBodies(0, "a short one")
	one := bodyWorld(t, "a")
	one.mustPublish(long("y"))
	one.wantBodies(0, "one queue")
}

func TestABodyIsReadFromTheStoreAndFreedAfterARestart(t *testing.T) {
	w := bodyWorld(t, "a", "b")
	payload := long("again")
	w.mustPublish(payload)
	w.mustPublish(payload)
	held := w.lease("b", 1)[0]
	w.Advance(time.Second) // its lease is written
	w = openWorld(t, w.store, w.now, nil)
	w.ackWhole("a", payload)
	w.must(func(tx *Tx) error { _, err := tx.Ack("b", []Receipt{held.Receipt}); return err })
	w.Advance(time.Second)
	w.wantBodies(1, "one of two has ended")
	w.ackWhole("b", payload)
	w.Advance(time.Second)
	w.wantBodies(0, "all have ended")
}

func TestPurgeAndDeletionFreeBodies(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		w := bodyWorld(t, "a", "b")
		payload := long("purged")
		for range 600 { // more than one part of a sweep
			w.mustPublish(payload)
		}
		end := func(queue string) {
			w.must(func(tx *Tx) error {
				if deleted {
					return tx.DeleteQueue(queue, true)
				}
				_, err := tx.Purge(&Purge{Queue: queue})
				return err
			})
			w.Advance(time.Second)
		}
		end("a")
		w.wantBodies(600, "one of two queues is empty")
		w.ackWhole("b", payload)
		w.Advance(time.Second)
		w.wantBodies(500, "a hundred were acked")
		end("b")
		w.wantBodies(0, "both are empty")
	}
}

// A dead letter has its payload itself, so the body goes with the messages of the publish. A redriven
// message is under its former key, and does not hold the body again.
func TestDeadLettersAndRedriveKeepThePayload(t *testing.T) {
	w := bodyWorld(t, "a", "b")
	payload := long("dead")
	w.mustPublish(payload)
	for _, queue := range []string{"a", "b"} {
		d := w.lease(queue, 1)[0]
		w.must(func(tx *Tx) error { _, err := tx.Nack(&Nack{Queue: queue, Receipt: d.Receipt, Dead: true}); return err })
	}
	w.wantBodies(0, "after both are dead")
	w = openWorld(t, w.store, w.now, nil)
	for _, queue := range []string{"a", "b"} {
		req := &Redrive{DLQ: queue + DLQSuffix, Count: 10}
		w.must(func(tx *Tx) error { _, err := tx.Redrive(req); return err })
		w.ackWhole(queue, payload)
	}
	w.wantBodies(0, "at the end")
}

// Counts are hints: without them, bodies are looked up.
func TestMoreBodiesThanCountsAreFreed(t *testing.T) {
	w := bodyWorld(t, "a", "b")
	payload := long("many")
	for range 5 {
		w.mustPublish(payload)
	}
	for i := range 2 * body.CountsMax {
		w.core.bodies.Stored(storage.MakeID(int64(i+1), 0, 0, 0), 1)
	}
	w.ackWhole("a", payload)
	w.Advance(time.Second)
	w.wantBodies(5, "one of two queues is empty")
	w.ackWhole("b", payload)
	w.Advance(time.Second)
	w.wantBodies(0, "both are empty")
}

func TestAMissingBodyIsDamageAndAnEndedMessageIsNot(t *testing.T) {
	w := bodyWorld(t, "a", "b")
	w.mustPublish(long("gone"))
	it := w.store.Scan(storage.Messages, nil, nil)
	it.Seek(nil)
	key := bytes.Clone(it.Key())
	id, ok := storage.BodyOf(it.Value())
	it.Close()
	if !ok {
		t.Fatal("the record has no reference")
	}
	read := storage.ScanMessages(w.store, nil, nil)
	defer read.Close()
	var b storage.Batch
	storage.DeleteBody(&b, id)
	if err := w.store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.GetMessage(w.store, key); err == nil || !strings.Contains(err.Error(), id.String()) {
		t.Errorf("a message without its body: %v", err)
	}
	b.Reset()
	b.DeleteRange(storage.Messages, nil, []byte{0xff})
	if err := w.store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	if read.Seek(nil) || read.Err() != nil { // the iterator sees the messages as of before
		t.Errorf("a message that has ended is read, %v", read.Err())
	}
}
