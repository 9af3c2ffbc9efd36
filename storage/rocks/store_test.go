package rocks_test

import (
	"testing"

	"github.com/faisca/fila/storage/rocks"
	"github.com/faisca/fila/storage/storetest"
)

func TestRocksIsAStore(t *testing.T) {
	for _, mode := range []rocks.Mode{rocks.Balanced, rocks.LowSpace, rocks.HighThroughput} {
		t.Run(string(mode), func(t *testing.T) {
			storetest.Exercise(t, func(t *testing.T, dir string) storetest.Store {
				t.Helper()
				s, err := rocks.Open(rocks.Options{Path: dir, Mode: mode})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}
