package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// asks has a client ask for the result of a message.
func (w *world) asks(client uint64, queue string, id ID, block time.Duration) (*Task, *ResultRequest) {
	req := &ResultRequest{Queue: queue, ID: id, Block: block}
	task := &Task{Client: NewClient(client, func() {}), Call: callFunc(func(tx *Tx) error { return tx.Result(req) })}
	w.Do(task)
	return task, req
}

// result is what a client that does not wait is answered.
func (w *world) result(queue string, id ID) Result {
	w.t.Helper()
	task, req := w.asks(99, queue, id, -1)
	if !task.Done() || task.Err() != nil {
		w.t.Fatalf("done %v, %v", task.Done(), task.Err())
	}
	return req.Result
}

// answer acks a message with a result.
func (w *world) answer(d *Delivery, value string) {
	w.must(func(tx *Tx) error {
		_, err := tx.AckWith(d.Queue, []Receipt{d.Receipt}, AckOptions{Result: []byte(value)})
		return err
	})
}

func TestAResultHasALimit(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Limits.Result = 3 })
	w.queue("q", QueueOptions{})
	id := w.enqueue("q", "k", "x")
	d := w.lease("q", 1)[0]
	err := w.do(func(tx *Tx) error {
		_, err := tx.AckWith("q", []Receipt{d.Receipt}, AckOptions{Result: []byte("four")})
		return err
	})
	if !errors.Is(err, ErrTooBig) || w.result("q", id).Status != ResultPending {
		t.Errorf("an ack with a result of 4 bytes: %v, then %+v", err, w.result("q", id))
	}
	w.answer(d, "abc")
	if r := w.result("q", id); string(r.Value) != "abc" {
		t.Errorf("a result of 3 bytes: %+v", r)
	}
}

// A reply about an end must not leave before the end is on disk.
func TestARequestIsAnsweredAfterTheCommitOfTheAck(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	id := w.enqueue("q", "k", "x")
	d := w.lease("q", 1)[0]
	task, req := w.asks(1, "q", id, 0)
	w.turn([]*Task{{Call: callFunc(func(tx *Tx) error {
		_, err := tx.AckWith("q", []Receipt{d.Receipt}, AckOptions{Result: []byte("v")})
		return err
	})}})
	if task.Done() {
		t.Fatal("it was answered before the commit")
	}
	w.Do()
	if !task.Done() || req.Result.Status != ResultDone || string(req.Result.Value) != "v" {
		t.Errorf("done %v, %+v", task.Done(), req.Result)
	}
}

// What ends while the look-up of a request is under way answers it.
func TestAnEndDuringTheLookUpIsNotMissed(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Window, cfg.WindowTotal = 2, 2 })
	w.queue("q", QueueOptions{})
	var id ID
	for range 6 {
		id = w.enqueue("q", "k", "x")
	}
	if q := w.core.queues.byName["q"]; q.has(w.core, id) {
		t.Fatal("the message is in memory")
	}
	w.Lazy = func() bool { return true }
	task, req := w.asks(1, "q", id, 0)
	w.Lazy = nil
	w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
	w.Do()
	if !task.Done() || req.Result.Status != "" {
		t.Errorf("done %v, %+v", task.Done(), req.Result)
	}
}

func TestAWaitForAResultOutlastsARecovery(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	id := w.enqueue("q", "k", "x")
	task, req := w.asks(1, "q", id, time.Minute)
	w.recoverInPlace()
	w.answer(w.lease("q", 1)[0], "v")
	if !task.Done() || string(req.Result.Value) != "v" {
		t.Errorf("done %v, %+v", task.Done(), req.Result)
	}
	if q := w.core.queues.byName["q"]; len(q.resultWaits) != 0 {
		t.Errorf("%d messages are waited for", len(q.resultWaits))
	}
}

// Results are deleted by generation, whatever their number.
func TestResultsLeaveTheDisk(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.ResultTTL: 10_000}})
	first := w.enqueue("q", "k", "x")
	w.answer(w.lease("q", 1)[0], "first")
	for range 40 {
		w.Advance(time.Second)
		w.enqueue("q", "k", "x")
		w.answer(w.lease("q", 1)[0], "v")
		records := 0
		it := w.core.store.Scan(storage.Results, nil, nil)
		for ok := it.Seek(nil); ok; ok = it.Next() {
			records++
		}
		it.Close()
		if records > 31 {
			t.Fatalf("%d results are stored, of one a second and a RESULTTTL of ten", records)
		}
	}
	w.restart()
	if r := w.result("q", first); r.Status != "" {
		t.Errorf("the first result is known after 40 seconds: %+v", r)
	}
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) })
	if it := w.core.store.Scan(storage.Results, nil, nil); it.Seek(nil) {
		t.Error("a result outlasts its queue")
	}
}

func TestResultsAndTheRequestsForThemAreCounted(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	ids := []ID{w.enqueue("q", "k", "a"), w.enqueue("q", "k", "b")}
	counts := func(results uint64, waits int64) {
		t.Helper()
		for name, n := range map[string]Counts{"the queue": w.core.queues.byName["q"].counts(), "all": (&Tx{core: w.core}).Stats().Counts} {
			if n.Results != results || n.ResultWaits != waits {
				t.Errorf("%s: %d results and %d requests that wait, want %d and %d", name, n.Results, n.ResultWaits, results, waits)
			}
		}
	}
	w.asks(1, "q", ids[0], 0)
	w.asks(2, "q", ids[0], time.Minute)
	w.asks(3, "q", ids[1], time.Minute)
	counts(0, 3)
	for _, d := range w.lease("q", 2) {
		if d.Receipt.ID == ids[0] {
			w.answer(d, "v")
		}
	}
	counts(1, 1)
	w.recoverInPlace()
	w.Do() // the request runs again
	counts(1, 1)
	w.Advance(time.Minute)
	counts(1, 0)
	w.must(func(tx *Tx) error {
		return tx.AlterQueue("q", QueueOptions{Given: queueset.Given{queueset.ResultTTL: 0}})
	})
	w.answer(w.lease("q", 1)[0], "none is kept")
	counts(1, 0)
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) })
	if n := (&Tx{core: w.core}).Stats().Results; n != 1 {
		t.Errorf("%d results once the queue is deleted", n)
	}
}

// A value that has no room in memory is read when the reply is written. Without a record there is
// nothing to read, which is an error.
func TestAValueWithoutRoomIsReadLater(t *testing.T) {
	for ttl, want := range map[uint64]error{60_000: nil, 0: ErrNoRoom} {
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{Given: queueset.Given{queueset.ResultTTL: ttl}})
		id := w.enqueue("q", "k", "x")
		var asked []int
		room := false
		retain := func(n int) bool { asked = append(asked, n); return room }
		without := &ResultRequest{Queue: "q", ID: id, Retain: retain}
		with := &ResultRequest{Queue: "q", ID: id, Retain: func(int) bool { return true }}
		for i, req := range []*ResultRequest{without, with} {
			w.Do(&Task{Client: NewClient(uint64(i+1), func() {}), Call: callFunc(func(tx *Tx) error { return tx.Result(req) })})
		}
		w.answer(w.lease("q", 1)[0], "abc")
		if r := with.Result; r.Absent || string(r.Value) != "abc" {
			t.Errorf("with room: %+v", r)
		}
		if r := &without.Result; !r.Absent || r.Value != nil || r.Status != ResultDone || len(asked) != 1 || asked[0] != 3 {
			t.Errorf("without room: %+v, asked for %v", r, asked)
		}
		if err := w.LoadResult(&without.Result); !errors.Is(err, want) || want == nil && string(without.Result.Value) != "abc" {
			t.Errorf("RESULTTTL %d: %v, %+v", ttl, err, without.Result)
		}
		if want != nil {
			continue
		}
		late := &ResultRequest{Queue: "q", ID: id, Block: -1, Retain: retain} // from the record
		w.must(func(tx *Tx) error { return tx.Result(late) })
		if err := w.LoadResult(&late.Result); err != nil || string(late.Result.Value) != "abc" || len(asked) != 2 {
			t.Errorf("read from the record: %v, %+v, asked for %v", err, late.Result, asked)
		}
		w.must(func(tx *Tx) error { return tx.Result(late) })
		w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) })
		w.turn(nil)
		if err := w.LoadResult(&late.Result); err != nil || late.Result.Status != "" {
			t.Errorf("of a queue that is gone: %v, %+v", err, late.Result)
		}
	}
}
