package records

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
)

func TestRecordsOfANameAreVisited(t *testing.T) {
	store := storage.NewMemory()
	var b storage.Batch
	for _, key := range [][]string{{"x", "a", "1"}, {"x", "b", "2"}, {"xy", "c", "3"}, {"broken", "a"}} {
		b.Put(storage.State, Key(key[0], key[1:]), []byte(key[0]))
	}
	if err := store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	var got []string
	visit := func(parts []string, value []byte) error {
		got = append(got, fmt.Sprint(parts, string(value)))
		return nil
	}
	if err := Each(store, "thing", "x", 2, visit); err != nil || strings.Join(got, ",") != "[a 1]x,[b 2]x" {
		t.Errorf("visited %v, %v", got, err)
	}
	if err := Each(store, "thing", "broken", 2, visit); !errors.Is(err, storage.ErrCorrupt) || !strings.HasPrefix(err.Error(), "thing ") {
		t.Errorf("a key with too few parts: %v", err)
	}
	why := errors.New("why")
	if err := Each(store, "thing", "x", 2, func([]string, []byte) error { return why }); !errors.Is(err, why) || !strings.Contains(err.Error(), `thing ["a" "1"]`) {
		t.Errorf("a visit that fails: %v", err)
	}
}
