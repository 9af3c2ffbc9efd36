package loop_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
)

// What keys and messages take in memory is reported in steps while it grows and while it shrinks, and
// as nothing when the engine has ended.
func TestWhatIsHeldIsReported(t *testing.T) {
	const messages, size = 64, 1 << 20
	cfg := engine.DefaultConfig()
	var reported []int64
	cfg.Held = func(bytes int64) { reported = append(reported, bytes) }
	bubble(t, cfg, storage.NewMemory(), func(e *loop.Engine) {
		if err := ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(reported) != 0 {
			t.Errorf("an engine without messages: %v", reported)
		}
		for range messages {
			req := &engine.Enqueue{Queue: "q", Payload: make([]byte, size)}
			if err := e.Prepare(req); err != nil {
				t.Fatal(err)
			}
			if err := ask(e, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err }); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := len(reported); n != messages*size/loop.HeldStep || !slices.IsSorted(reported) || reported[n-1] < messages*size {
			t.Errorf("%d MiB enqueued: %v", messages*size>>20, reported)
		}
		reported = nil
		for range messages {
			if err := ask(e, func(tx *engine.Tx) error {
				ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1})
				if err == nil {
					_, err = tx.Ack("q", []engine.Receipt{ds[0].Receipt})
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := len(reported); n == 0 || reported[n-1] >= loop.HeldStep {
			t.Errorf("all acked: %v", reported)
		}
	})
	if n := len(reported); reported[n-1] != 0 {
		t.Errorf("the engine has ended: %v", reported)
	}
}
