//go:build cgo

package rocks

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// These benchmarks are what the figures of profileOf were chosen with.

func benchStore(b *testing.B, o Options) *Store {
	b.Helper()
	o.Path = filepath.Join(b.TempDir(), "store")
	s, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// messageKey is a key as the engine makes them: growing ids, some tenants.
func messageKey(dst []byte, n uint64) []byte {
	var id storage.ID
	binary.BigEndian.PutUint64(id[:], n)
	binary.BigEndian.PutUint64(id[8:], n*0x9E3779B97F4A7C15)
	return storage.AppendMessageKey(dst, 1, "tenant-4", 4, id)
}

// payload does not compress, as a hard case.
func payload(n uint64) []byte {
	p := make([]byte, 256)
	x := n*0x9E3779B97F4A7C15 + 1
	for i := 0; i < len(p); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(p[i:], x)
	}
	return p
}

// BenchmarkCommit puts and single deletes so many messages a commit, the
// deletes a while behind the puts, as a queue does that keeps up. The figures
// are per commit, and per message as µs/msg.
func BenchmarkCommit(b *testing.B) {
	for _, mode := range []Mode{LowSpace, Balanced, HighThroughput} {
		for _, sync := range []bool{true, false} {
			for _, size := range []int{1, 16, 256} {
				b.Run(fmt.Sprintf("%s/sync=%v/%d", mode, sync, size), func(b *testing.B) {
					s := benchStore(b, Options{Mode: mode})
					const behind = 5000
					var batch storage.Batch
					var key []byte
					value := payload(1)
					n := uint64(0)
					slowest := time.Duration(0)
					b.ResetTimer()
					for range b.N {
						start := time.Now()
						batch.Reset()
						for range size {
							key = messageKey(key[:0], n)
							batch.Put(storage.Messages, key, value)
							if n >= behind {
								key = messageKey(key[:0], n-behind)
								batch.SingleDelete(storage.Messages, key)
							}
							n++
						}
						if err := s.Commit(&batch, sync); err != nil {
							b.Fatal(err)
						}
						slowest = max(slowest, time.Since(start))
					}
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/msg")
					b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest")
				})
			}
		}
	}
}

// BenchmarkDrainAndRefill fills a queue and drains it, again and again, and
// after each round looks for the first message in two ways: from the very
// beginning of the queue, as a start does, across all that was deleted; and
// from behind the last message taken, as the engine does. The first has to
// stay bounded however many rounds there are, the second has to stay small.
func BenchmarkDrainAndRefill(b *testing.B) {
	const depth = 100_000
	for _, single := range []bool{true, false} {
		b.Run(fmt.Sprintf("single=%v", single), func(b *testing.B) {
			s := benchStore(b, Options{})
			var batch storage.Batch
			var key []byte
			value := payload(1)
			n := uint64(0)
			run := func(change func(n uint64)) {
				for i := range uint64(depth) {
					change(n + i)
					if i%256 == 255 || i == depth-1 {
						if err := s.Commit(&batch, false); err != nil {
							b.Fatal(err)
						}
						batch.Reset()
					}
				}
			}
			prefix := storage.AppendQueuePrefix(nil, 1)
			look := func(from []byte) time.Duration {
				start := time.Now()
				it := s.Scan(storage.Messages, from, storage.After(prefix))
				it.Next()
				err := it.Err()
				it.Close()
				if err != nil {
					b.Fatal(err)
				}
				return time.Since(start)
			}
			var first, slowest, next time.Duration
			for b.Loop() {
				run(func(n uint64) {
					key = messageKey(key[:0], n)
					batch.Put(storage.Messages, key, value)
				})
				run(func(n uint64) {
					key = messageKey(key[:0], n)
					if single {
						batch.SingleDelete(storage.Messages, key)
					} else {
						batch.Delete(storage.Messages, key)
					}
				})
				n += depth
				next += look(key)
				took := look(prefix)
				first += took
				slowest = max(slowest, took)
			}
			b.ReportMetric(float64(next.Microseconds())/float64(b.N), "µs/next")
			b.ReportMetric(float64(first.Microseconds())/float64(b.N), "µs/first")
			b.ReportMetric(float64(slowest.Microseconds()), "µs-slowest-first")
			st, err := s.Stats()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(st.TableBytes)/(1<<20), "MiB-on-disk")
		})
	}
}

// BenchmarkRead is what one step costs: of a scan with keys only, of a scan
// with values, of a look at one body, and of one that finds nothing.
func BenchmarkRead(b *testing.B) {
	const messages = 200_000
	s := benchStore(b, Options{})
	var batch storage.Batch
	for n := range uint64(messages) {
		batch.Put(storage.Messages, messageKey(nil, n), payload(n))
		if batch.Len() == 1000 {
			if err := s.Commit(&batch, false); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
	// A checkpoint writes everything to tables, where stored messages are.
	if err := s.Checkpoint(filepath.Join(b.TempDir(), "copy")); err != nil {
		b.Fatal(err)
	}
	scan := func(b *testing.B, look func(it storage.Iterator)) {
		b.Helper()
		it := s.Scan(storage.Messages, nil, nil)
		defer it.Close()
		for b.Loop() {
			if !it.Next() && !it.Seek(nil) {
				b.Fatal(it.Err())
			}
			look(it)
		}
	}
	b.Run("scan/keys", func(b *testing.B) { scan(b, func(it storage.Iterator) { it.Key() }) })
	b.Run("scan/values", func(b *testing.B) { scan(b, func(it storage.Iterator) { it.Key(); it.Value() }) })
	b.Run("open", func(b *testing.B) {
		from := messageKey(nil, messages/2)
		for b.Loop() {
			it := s.Scan(storage.Messages, from, storage.After(from))
			it.Next()
			it.Close()
		}
	})
	for name, f := range map[string]storage.Family{"get": storage.Messages, "miss": storage.Attempts} {
		b.Run(name, func(b *testing.B) {
			n := uint64(0)
			for b.Loop() {
				n = (n*1103515245 + 12345) % messages
				if _, err := s.Get(f, messageKey(nil, n)); (err == nil) != (f == storage.Messages) {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCommitResults puts the results of messages that were enqueued 20,000 a second and end 1000 behind, not quite in
// their order, 100 a commit, and reads one of the last 1000 after so many commits: what waiting for results costs beside
// acks. The figures are per message.
func BenchmarkCommitResults(b *testing.B) {
	for n, every := range []int{1, 1, 1 << 30, 1 << 30} {
		memtable := []Memtable{Lanes, SkipList}[n%2]
		b.Run(fmt.Sprintf("%s/get=%t", memtable, every == 1), func(b *testing.B) {
			s := benchStore(b, Options{Memtable: memtable})
			const size, behind = 100, 1000
			rng := rand.New(rand.NewPCG(1, 2))
			var batch storage.Batch
			key := func(n int) []byte {
				return storage.AppendResultKey(nil, 1, 1, storage.MakeID(1_800_000_000_000_000_000+int64(n)*50_000, 7, 5, uint32(n)))
			}
			value := payload(1)[:60]
			order := rng.Perm(behind)
			for n := range b.N {
				batch.Put(storage.Results, key(n/behind*behind+order[n%behind]), value)
				if n%size == size-1 {
					if err := s.Commit(&batch, false); err != nil {
						b.Fatal(err)
					}
					batch.Reset()
					if n/size%every == every-1 || every == 1 {
						if _, err := s.Get(storage.Results, key(n/behind*behind+order[rng.IntN(n%behind+1)])); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// BenchmarkCommitKeys puts and single deletes messages of so many fairness keys,
// of which 1000 are in the store at a time, 250 a commit and without sync: what
// a commit costs beside the disk, with each memtable. The figures are per message.
func BenchmarkCommitKeys(b *testing.B) {
	for n, keys := range []int{1, 1, 100, 100, 100_000, 100_000} {
		memtable := []Memtable{Lanes, SkipList}[n%2]
		b.Run(fmt.Sprintf("%d/%s", keys, memtable), func(b *testing.B) {
			s := benchStore(b, Options{Memtable: memtable})
			const behind, size = 1000, 250
			rng := rand.New(rand.NewPCG(1, 2))
			var live [behind][]byte
			var batch storage.Batch
			value := payload(1)
			for n := range b.N {
				at := n % behind
				if n >= behind {
					batch.SingleDelete(storage.Messages, live[at])
				}
				var id storage.ID
				binary.BigEndian.PutUint64(id[:], uint64(n)<<12)
				binary.BigEndian.PutUint64(id[8:], rng.Uint64())
				live[at] = storage.AppendMessageKey(live[at][:0], 1, fmt.Sprintf("key-%d", rng.IntN(keys)), 5, id)
				batch.Put(storage.Messages, live[at], value)
				if n%size == size-1 {
					if err := s.Commit(&batch, false); err != nil {
						b.Fatal(err)
					}
					batch.Reset()
				}
			}
		})
	}
}
