//go:build cgo

package broker

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage/rocks"
)

var takeoverKeys = flag.Int("takeover", 100_000, "fairness keys of BenchmarkLifecycleTakeover, with a message each") //nolint:gochecknoglobals // a flag

// BenchmarkLifecycleTakeover measures how long an engine takes until it executes commands, over the open store of
// another one that has stopped, as where a node takes over. What the store has is in memory: it is of an
// engine that has read nothing of it.
func BenchmarkLifecycleTakeover(b *testing.B) {
	for range b.N {
		b.StopTimer()
		store, err := rocks.Open(rocks.Options{Path: b.TempDir(), Mode: "balanced", BlockCacheBytes: 64 << 20})
		if err != nil {
			b.Fatal(err)
		}
		first, end := runOver(b, store)
		l := &lifecycle{b: b, engine: first}
		l.do(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
		l.fillSmall(*takeoverKeys)
		end()
		for _, name := range []string{"first", "again"} {
			b.StartTimer()
			began := time.Now()
			_, end := runOver(b, store)
			b.ReportMetric(float64(time.Since(began).Microseconds())/1e3, "ms-"+name)
			b.StopTimer()
			end()
		}
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// fillSmall enqueues a small message for each of n fairness keys: the store keeps all of them in one memtable.
func (l *lifecycle) fillSmall(n int) {
	l.b.Helper()
	const portion = 2000
	for from := 0; from < n; from += portion {
		var calls []func(tx *engine.Tx) error
		for i := from; i < min(n, from+portion); i++ {
			req := &engine.Enqueue{Queue: "q", Key: fmt.Sprint("key-", i), Payload: []byte("x")}
			if err := l.engine.Prepare(req); err != nil {
				l.b.Fatal(err)
			}
			calls = append(calls, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
		}
		l.do(calls...)
	}
}

// runOver runs an engine over a store, and returns it once it executes commands, with what ends it.
func runOver(b *testing.B, store *rocks.Store) (*loop.Engine, func()) {
	b.Helper()
	e, err := loop.New(engine.DefaultConfig(), store)
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- e.Run(context.Background()) }()
	<-e.Ready()
	return e, func() {
		e.Stop()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
