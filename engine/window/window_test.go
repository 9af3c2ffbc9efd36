package window

import (
	"testing"
	"unsafe"

	"github.com/faisca/fila/internal/testkit"
)

// item is a message in memory.
type item struct {
	p       Place
	version int
}

func (i *item) Position() Place { return i.p }

func at(n int) *item {
	i := &item{}
	i.p.ID[0] = byte(n)
	return i
}

// What embeds a Window arranges cache lines by these: the second half is the memory of short windows and
// what the engine asks for after each change.
func TestAWindowIsOneCacheLine(t *testing.T) {
	var w Window[*item]
	if size, few := unsafe.Sizeof(w), unsafe.Offsetof(w.few); size != 64 || few != 24 {
		t.Errorf("a window has %d bytes, its list %d", size, few)
	}
}

// A head cache accepts any message, also one at a position that is occupied: a message may
// be moved to where a store that has lost something has it already.
func TestWindowTakesAPlaceThatIsTaken(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 12, 13} {
		var w Window[*item]
		for n := range size {
			w.Add(at(n), at(n).p, false, 100)
		}
		for _, n := range []int{size - 1, 0, size / 2} {
			if !w.Add(at(n), at(n).p, false, 100) {
				t.Fatalf("%d messages: place %d is not taken into the window", size, n)
			}
		}
		if w.Len() != size+3 {
			t.Errorf("%d messages and 3 more are %d", size, w.Len())
		}
		for i, m := range w.All()[1:] {
			if m.p.Less(w.All()[i].p) {
				t.Errorf("%d messages: %x is behind %x", size, m.p.ID[0], w.All()[i].p.ID[0])
			}
		}
	}
}

// Few messages are stored in the window itself, more in a slice of their own, and a message that has
// left the window is not referenced any more.
func TestWindowsMoveOutOfTheirMemoryAndBack(t *testing.T) {
	var w Window[*item]
	for n := 1; n <= 9; n++ {
		for i := range n {
			w.Add(at(i), at(i).p, true, 100)
		}
		if inside := &w.list[0] == &w.few[0]; inside != (n <= len(w.few)) {
			t.Errorf("%d messages: in the window %v", n, inside)
		} else if !inside && w.few != [len(w.few)]*item{} {
			t.Errorf("%d messages: the window still holds %v", n, w.few)
		}
		for i := range n {
			if got := w.Pop(); got.p != at(i).p {
				t.Fatalf("%d messages: got %v as number %d", n, got, i)
			}
		}
		if w.few != [len(w.few)]*item{} {
			t.Errorf("%d messages have left: the window still holds %v", n, w.few)
		}
	}
}

// The path of a message in memory allocates nothing, and an ack asks only whether there is an edge.
func TestAMessageInMemoryAllocatesNothing(t *testing.T) {
	var w Window[*item]
	m := at(1)
	if n := testkit.Allocations(100, func() {
		w.Add(m, m.p, true, 100)
		w.Request(50)
		w.Changed(w.Pop().p)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
