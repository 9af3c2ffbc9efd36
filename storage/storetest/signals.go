package storetest

import (
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
)

// Signals returns the signals that a store has, each as SUBJECT/NAME, in the order of their keys.
func Signals(t *testing.T, store *storage.Memory) string {
	t.Helper()
	it := store.Scan(storage.Signals, nil, nil)
	defer it.Close()
	var all []string
	for ok := it.Seek(nil); ok; ok = it.Next() {
		subject, name, err := storage.ParseSignalKey(it.Key())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, subject+"/"+name)
	}
	return strings.Join(all, " ")
}
