//go:build !race

package engine

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
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

func TestTheRuntimeConfigurationIsBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Values, c.Limits.ValueBytes = 3, 20 })
	steps := []struct {
		name  string
		pairs []string
		ok    bool
	}{
		{"up to the number", []string{"a", "1", "b", "2", "c", "3"}, true},
		{"one too many", []string{"d", "4"}, false},
		{"another value of one that is there", []string{"c", "33"}, true},
		{"up to the bytes", []string{"a", strings.Repeat("x", 14)}, true},
		{"a byte too many", []string{"b", "22"}, false},
		{"another key in its place, after it was deleted", []string{"b", "1"}, true},
	}
	for _, s := range steps {
		err := w.setConfig(s.pairs...)
		if s.ok && err != nil || !s.ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	store := w.store
	w = openWorld(t, store, w.now.Add(time.Second), func(c *Config) { c.Limits.Values, c.Limits.ValueBytes = 3, 20 })
	if err := w.setConfig("a", strings.Repeat("x", 15)); !errors.Is(err, ErrInvalid) {
		t.Errorf("after a restart, a byte too many: %v", err)
	}
	w.must(func(tx *Tx) error { _, err := tx.DeleteConfig([]string{"a", "b"}); return err })
	if err := w.setConfig("d", strings.Repeat("x", 16)); err != nil {
		t.Errorf("after deletions: %v", err)
	}
}

func TestConfigKeysAreListedInOrder(t *testing.T) {
	w := newWorld(t, nil)
	if err := w.setConfig("b:2", "", "a", "", "b:1", "", "c", "", "b:3", ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prefix, after string
		count         int
		want          []string
	}{
		{"", "", 10, []string{"a", "b:1", "b:2", "b:3", "c"}}, {"b:", "", 10, []string{"b:1", "b:2", "b:3"}},
		{"b:", "b:1", 10, []string{"b:2", "b:3"}}, {"b:", "b:1", 1, []string{"b:2"}}, {"b:", "c", 10, nil}, {"", "c", 10, nil}, {"x", "", 10, nil},
		{"b:", "a", 10, []string{"b:1", "b:2", "b:3"}},
	} {
		var got []string
		w.must(func(tx *Tx) error { got = tx.ConfigKeys(c.prefix, c.after, c.count); return nil })
		if !slices.Equal(got, c.want) {
			t.Errorf("prefix %q after %q, %d at most: %v, want %v", c.prefix, c.after, c.count, got, c.want)
		}
	}
}
