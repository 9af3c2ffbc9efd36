package engine

import (
	"fmt"
	"strings"
	"testing"
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
	for i := range c.acts.All() {
		a := &c.acts.All()[i]
		if a.Number <= last {
			o.fail("act %d follows act %d", a.Number, last)
		}
		last, newest[a.Object] = a.Number, a.After
	}
	for name := range c.order.Inside().AllThrottles() {
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
