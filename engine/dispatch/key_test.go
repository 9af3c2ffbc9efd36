package dispatch

import (
	"testing"
	"unsafe"
)

// What embeds a Key arranges cache lines by these: 24 bytes for an enqueue, then 64 for a delivery.
func TestTheHotFieldsOfAKeyAreTogether(t *testing.T) {
	var k Key
	if at := unsafe.Offsetof(k.prev); at != 24 {
		t.Errorf("what an enqueue needs takes %d bytes", at)
	}
	if at := unsafe.Offsetof(k.set); at != 24+64 {
		t.Errorf("what a delivery needs takes %d bytes", at)
	}
}
