package mailbox

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/faisca/fila/internal/testkit"
)

func TestItemsComeInTheirOrderAndAllAtOnce(t *testing.T) {
	b := New[int](0)
	b.Put([]int{1, 2})
	b.Put(nil)
	b.Put([]int{3})
	if got, dropped := b.Wait(nil); !slices.Equal(got, []int{1, 2, 3}) || dropped != 0 {
		t.Errorf("%v, %d dropped", got, dropped)
	}
	b.Put([]int{4})
	b.End()
	if got, _ := b.Wait(nil); !slices.Equal(got, []int{4}) {
		t.Errorf("after the end: %v", got)
	}
	if got, _ := b.Wait(nil); len(got) != 0 {
		t.Errorf("after everything: %v", got)
	}
}

func TestAWaitEndsWithTheFirstItemOrTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New[int](0)
		var all sync.WaitGroup
		var got [][]int
		all.Go(func() {
			for {
				items, _ := b.Wait(nil)
				got = append(got, items)
				if len(items) == 0 {
					return
				}
			}
		})
		synctest.Wait()
		b.Put([]int{1})
		synctest.Wait()
		b.Put([]int{2, 3})
		synctest.Wait()
		b.End()
		all.Wait()
		if len(got) != 3 || len(got[0]) != 1 || len(got[1]) != 2 {
			t.Errorf("got %v", got)
		}
	})
}

func TestWhatHasNoRoomIsDroppedAndCounted(t *testing.T) {
	b := New[int](3)
	b.Put([]int{1, 2})
	b.Put([]int{3})
	if b.Dropped() != 0 {
		t.Error("something is dropped below the bound")
	}
	b.Put([]int{4, 5})
	if got, dropped := b.Wait(nil); !slices.Equal(got, []int{1, 2, 3}) || dropped != 2 || b.Dropped() != 2 {
		t.Errorf("%v, %d dropped of %d", got, dropped, b.Dropped())
	}
	b.Put([]int{6, 7, 8, 9})
	if got, dropped := b.Wait(nil); !slices.Equal(got, []int{6, 7, 8}) || dropped != 1 || b.Dropped() != 3 {
		t.Errorf("%v, %d dropped of %d", got, dropped, b.Dropped())
	}
}

func TestAnExchangeOfSlicesAllocatesNothing(t *testing.T) {
	b := New[int](0)
	items, spare := []int{1, 2, 3}, make([]int, 0, 8)
	b.Put(items)
	spare, _ = b.Wait(spare)
	if n := testkit.Allocations(100, func() {
		b.Put(items)
		spare, _ = b.Wait(spare[:0])
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
