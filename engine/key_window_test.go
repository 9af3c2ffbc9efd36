//go:build !race

package engine

import "testing"

// A head cache accepts any message, also one at a position that is occupied: a message may
// be moved to where a store that has lost something has it already.
func TestWindowTakesAPlaceThatIsTaken(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 12, 13} {
		k := &fairKey{edge: lastPlace}
		at := func(n int) *message {
			m := &message{}
			m.id[0] = byte(n)
			return m
		}
		for n := range size {
			k.add(at(n), false, 100)
		}
		for _, n := range []int{size - 1, 0, size / 2} {
			if !k.add(at(n), false, 100) {
				t.Fatalf("%d messages: place %d is not taken into the window", size, n)
			}
		}
		if len(k.window) != size+3 {
			t.Errorf("%d messages and 3 more are %d", size, len(k.window))
		}
		for i, m := range k.window[1:] {
			if m.place.less(k.window[i].place) {
				t.Errorf("%d messages: %x is behind %x", size, m.id[0], k.window[i].id[0])
			}
		}
	}
}
