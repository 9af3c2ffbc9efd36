package rocks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/faisca/fila/storage"
)

func TestHintsAreInForceForMessagesAndLeases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	files, err := filepath.Glob(filepath.Join(path, "OPTIONS-*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file of options: %v", err)
	}
	text, err := os.ReadFile(slices.Max(files))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fila.MessageHints", "fila.LeaseHints"} {
		if n := bytes.Count(text, []byte("memtable_insert_with_hint_prefix_extractor="+name)); n != 1 {
			t.Errorf("%d families have %s, want one", n, name)
		}
	}
}

// TestHintsDoNotChangeTheOrder writes messages of few and of very many keys, in
// and out of the order of their ids, across several memtables.
func TestHintsDoNotChangeTheOrder(t *testing.T) {
	for _, keys := range []int{1, 7, 3000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Mode: LowSpace})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			rng := rand.New(rand.NewPCG(uint64(keys), 1)) //nolint:gosec // a seed
			want := map[string]bool{}
			var live [][]byte
			var batch storage.Batch
			value := make([]byte, 600)
			for n := range uint64(30_000) {
				var id storage.ID
				at := n << 20
				if rng.IntN(4) == 0 {
					at = rng.Uint64N(at + 1) // a retried one, or a clock that is behind
				}
				binary.BigEndian.PutUint64(id[:], at)
				binary.BigEndian.PutUint64(id[8:], n)
				key := storage.AppendMessageKey(nil, 1+uint32(n%2), fmt.Sprintf("key-%d", rng.IntN(keys)), uint8(rng.IntN(3)), id) //nolint:gosec // small
				batch.Put(storage.Messages, key, value)
				want[string(key)] = true
				live = append(live, key)
				if len(live) > 500 {
					i := rng.IntN(len(live))
					batch.SingleDelete(storage.Messages, live[i])
					delete(want, string(live[i]))
					live[i] = live[len(live)-1]
					live = live[:len(live)-1]
				}
				if n%100 == 99 {
					if err := s.Commit(&batch, false); err != nil {
						t.Fatal(err)
					}
					batch.Reset()
				}
			}
			it := s.Scan(storage.Messages, nil, nil)
			defer it.Close()
			var last []byte
			for ok := it.Seek(nil); ok; ok = it.Next() {
				if bytes.Compare(last, it.Key()) >= 0 {
					t.Fatalf("%x does not come behind %x", it.Key(), last)
				}
				last = append(last[:0], it.Key()...)
				if !want[string(last)] {
					t.Fatalf("%x was deleted", last)
				}
				delete(want, string(last))
			}
			if err := it.Err(); err != nil {
				t.Fatal(err)
			}
			if len(want) > 0 {
				t.Errorf("%d messages are missing", len(want))
			}
			for _, key := range live {
				if _, err := s.Get(storage.Messages, key); err != nil {
					t.Fatalf("%x: %v", key, err)
				}
			}
		})
	}
}
