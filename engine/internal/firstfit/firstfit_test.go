package firstfit

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct{ at, need int64 }

func (i *item) Precedes(o *item) bool { return i.at < o.at }

// TestTheFirstThatFitsIsThatOfAList compares a tree with a sorted list that is searched from its
// beginning, over insertions and removals in random order.
func TestTheFirstThatFitsIsThatOfAList(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 1))
	found, none := 0, 0
	for range 200 {
		var tree Tree[*item]
		var list []*item
		for range 300 {
			switch e := (&item{r.Int64(), r.Int64N(100)}); {
			case r.IntN(3) > 0 || len(list) == 0:
				at, _ := slices.BinarySearchFunc(list, e, func(a, b *item) int { return cmp.Compare(a.at, b.at) })
				list = slices.Insert(list, at, e)
				tree.Insert(e, e.need)
			default:
				at := r.IntN(len(list))
				if need, ok := tree.Need(list[at]); !ok || need != list[at].need || !tree.Remove(list[at]) || tree.Remove(list[at]) {
					t.Fatal("an element is not in the tree once")
				}
				list = slices.Delete(list, at, at+1)
			}
			most := r.Int64N(40) - 2
			want := slices.IndexFunc(list, func(e *item) bool { return e.need <= most })
			got, ok := tree.First(most)
			if ok != (want >= 0) || ok && got != list[want] {
				t.Fatalf("found %v, %v; want the element %d of %d", got, ok, want, len(list))
			}
			if ok {
				found++
			} else {
				none++
			}
		}
		var all []*item
		tree.All(func(e *item, _ int64) { all = append(all, e) })
		if !slices.Equal(all, list) || tree.Len() != len(list) {
			t.Fatal("the order is not that of the list")
		}
		if least, ok := tree.Least(); ok && least != slices.MinFunc(list, func(a, b *item) int { return cmp.Compare(a.need, b.need) }).need {
			t.Fatalf("the least need is %d", least)
		}
	}
	if found < 10_000 || none < 1000 {
		t.Errorf("only %d were found and %d not", found, none)
	}
}

// depth returns the greatest number of nodes from the root to a leaf.
func (n *node[T]) depth() int {
	if n == nil {
		return 0
	}
	return 1 + max(n.left.depth(), n.right.depth())
}

func TestATreeThatGrowsAtItsEndsStaysFlat(t *testing.T) {
	for name, step := range map[string]int64{"ascending": 1, "descending": -1} {
		var tree Tree[*item]
		for i := range int64(100_000) {
			tree.Insert(&item{at: step * i}, i)
		}
		if d := tree.root.depth(); d > 60 {
			t.Errorf("%s: %d levels for 100,000 elements, want at most 60", name, d)
		}
	}
}
