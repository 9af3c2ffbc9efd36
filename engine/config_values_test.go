package engine

import (
	"fmt"
	"runtime"
	"testing"
)

func (w *world) setConfig(pairs ...string) error {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return w.do(func(tx *Tx) error { return tx.SetConfig(values) })
}

func manyValues(n int) map[string]string {
	values := make(map[string]string, n)
	for i := range n {
		values[fmt.Sprintf("k%06d", i)] = "v"
	}
	return values
}

// allocated returns the number of bytes that a function allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestSettingAValueCostsTheSameBesideManyOthers(t *testing.T) {
	const sets = 100
	cost := func(others int) uint64 {
		w := newWorld(t, nil)
		w.must(func(tx *Tx) error { return tx.SetConfig(manyValues(others)) })
		return allocated(func() {
			for i := range sets {
				if err := w.setConfig(fmt.Sprintf("k%06d", i*others/sets), "new"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	few, many := cost(100), cost(50_000)
	if many > 4*few {
		t.Errorf("%d sets beside 100 values allocate %d bytes, beside 50,000 values %d", sets, few, many)
	}
}

func TestASnapshotDoesNotChangeWhenValuesDo(t *testing.T) {
	w := newWorld(t, nil)
	w.must(func(tx *Tx) error { return tx.SetConfig(manyValues(1000)) })
	before := w.Snapshot()
	for i := range 1000 {
		if err := w.setConfig(fmt.Sprintf("k%06d", i), "new", fmt.Sprintf("n%d", i), "x"); err != nil {
			t.Fatal(err)
		}
	}
	w.must(func(tx *Tx) error { _, err := tx.DeleteConfig([]string{"k000000"}); return err })
	for i := range 1000 {
		if v, _ := before.Get(fmt.Sprintf("k%06d", i)); v != "v" {
			t.Fatalf("value %d of an earlier snapshot is %q", i, v)
		}
	}
	if _, ok := before.Get("n1"); ok || before.config.Len() != 1000 {
		t.Errorf("an earlier snapshot has %d values", before.config.Len())
	}
	if _, ok := w.Snapshot().Get("k000000"); ok {
		t.Error("a deleted value is still there")
	}
}
