//go:build !race

package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
)

// settingOf is a throttle as the acts of the simulation show it.
func settingOf(c *core, name string) string {
	set := c.order.Inside().Setting(name)
	if set == nil {
		return ""
	}
	return fmt.Sprint(*set)
}

// recordThrottle keeps the change of a throttle as an act.
func (tx *Tx) recordThrottle(name string) error {
	return tx.RecordAct(Act{User: "sim", Object: name, After: settingOf(tx.core, name)})
}

// acts compares the newest act about each throttle with what the throttle is: both are in one write, so
// neither is there without the other.
func (o *oracle) acts(c *core) {
	newest, last := map[string]string{}, uint64(0)
	for i := range c.acts.list {
		a := &c.acts.list[i]
		if a.Number <= last {
			o.fail("act %d follows act %d", a.Number, last)
		}
		last, newest[a.Object] = a.Number, a.After
	}
	for name := range c.order.Inside().Throttles() {
		if _, known := newest[name]; !known && settingOf(c, name) != "" && strings.HasPrefix(name, "t") {
			o.fail("throttle %s was set without an act", name)
		}
	}
	for name, setting := range newest {
		if is := settingOf(c, name); is != setting && strings.HasPrefix(name, "t") {
			o.fail("throttle %s is %q, its newest act says %q", name, is, setting)
		}
	}
}

// actNumbers returns the numbers of a page, and the cursor behind it.
func (w *world) actNumbers(cursor uint64, count int) (s string) {
	w.t.Helper()
	w.must(func(tx *Tx) error {
		next, list := tx.Acts(cursor, count)
		var numbers []uint64
		for i := range list {
			numbers = append(numbers, list[i].Number)
		}
		s = fmt.Sprint(numbers, next)
		return nil
	})
	return s
}

func TestActsAreKeptNewestFirstAndInNumber(t *testing.T) {
	w := newWorld(t, nil)
	const more = 5
	for i := range ActsMax + more {
		w.must(func(tx *Tx) error { return tx.RecordAct(Act{User: "anna", Command: "X", After: fmt.Sprint(i)}) })
	}
	for range 2 {
		for _, tt := range []struct {
			cursor uint64
			count  int
			want   string
		}{
			{0, 2, "[1005 1004] 1004"}, {1004, 2, "[1003 1002] 1002"}, {8, 2, "[7 6] 0"}, {8, 9, "[7 6] 0"}, {7, 1, "[6] 0"}, {6, 1, "[] 0"}, {3, 1, "[] 0"},
			{5000, 1, "[1005] 1005"},
		} {
			if got := w.actNumbers(tt.cursor, tt.count); got != tt.want {
				t.Errorf("page of %d from %d: %s, want %s", tt.count, tt.cursor, got, tt.want)
			}
		}
		n, it := 0, w.core.store.Scan(storage.State, storage.AppendStateKey(nil, storage.StateAct), append(storage.AppendStateKey(nil, storage.StateAct), 0xff))
		for it.Next() {
			n++
		}
		it.Close()
		if n != ActsMax {
			t.Errorf("the store has %d acts", n)
		}
		w.restart()
	}
}

func TestTextsOfActsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	long := strings.Repeat("é", ActSettingMax)
	w.must(func(tx *Tx) error {
		return tx.RecordAct(Act{User: long, Addr: long, Command: long, Object: long, Before: long, After: long})
	})
	w.restart()
	w.must(func(tx *Tx) error {
		_, list := tx.Acts(0, 1)
		a := list[0]
		for _, text := range []string{a.User, a.Addr, a.Command, a.Object} {
			if text != long[:ActNameMax] {
				t.Errorf("kept %d bytes", len(text))
			}
		}
		if a.Before != long[:ActSettingMax] || a.After != a.Before {
			t.Errorf("kept %d and %d bytes", len(a.Before), len(a.After))
		}
		return nil
	})
}

// An act whose write has failed is none, like the change in the same write.
func TestAnActIsInTheWriteOfItsChange(t *testing.T) {
	w := newWorld(t, nil)
	change := func(name string) error {
		return w.do(func(tx *Tx) error {
			if err := tx.SetConfig(map[string]string{name: "1"}); err != nil {
				return err
			}
			return tx.RecordAct(Act{Object: name})
		})
	}
	if err := change("a"); err != nil {
		t.Fatal(err)
	}
	before := w.core.out.batchNo
	if err := change("b"); err != nil || w.core.out.batchNo != before+1 {
		t.Errorf("%d batches, %v", w.core.out.batchNo-before, err)
	}
	if got := w.actNumbers(0, 9); got != "[2 1] 0" {
		t.Errorf("acts %s", got)
	}
}
