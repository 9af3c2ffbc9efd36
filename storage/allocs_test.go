//go:build !race

package storage_test

import "testing"

// The race detector allocates on its own.

func TestAppendingAMessageAllocatesOnce(t *testing.T) {
	m := fullMessage()
	if n := testing.AllocsPerRun(100, func() { _ = m.Append(nil) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
