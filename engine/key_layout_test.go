package engine

import (
	"testing"
	"unsafe"
)

// With very many keys none is in a CPU cache, and a message costs one wait for memory for
// each cache line of its key that it needs.
func TestHotFieldsOfAKeyAreTogether(t *testing.T) {
	const line = 64
	var k fairKey
	for name, at := range map[string]uintptr{
		"the beginning of the window's memory": unsafe.Offsetof(k.window) + 24, // as the tests of window verify
		"the end of what enqueueing needs":     unsafe.Offsetof(k.Key) + 24,    // and those of dispatch
	} {
		if at%line != 0 {
			t.Errorf("%s is at byte %d, which is in the middle of a cache line", name, at)
		}
	}
	if at := unsafe.Offsetof(k.Key) + 88; at != 3*line {
		t.Errorf("what each delivery needs takes %d bytes, want three cache lines", at)
	}
	if size := unsafe.Sizeof(k); size%line != 0 {
		t.Errorf("a key has %d bytes: keys beside it are not at the beginning of a line", size)
	}
}
