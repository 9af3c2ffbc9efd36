package figures

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/engine/internal/states"
)

// Pages of any size, in both directions, put together are all queues in their order, whatever the order in which they
// are offered; and a cursor survives being written.
func TestPagesOfASortedListingAreAllQueuesInOrder(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // reproducible on purpose
		all := make([]Place, rng.IntN(60))
		for i := range all {
			all[i] = Place{Value: rng.Int64N(7) - 3, Name: fmt.Sprintf("%c-%d.%d", 'a'+rng.IntN(3), rng.IntN(3), i)}
		}
		want := slices.Clone(all)
		reverse := seed%2 == 1
		slices.SortFunc(want, func(a, b Place) int {
			order := int(b.Value - a.Value)
			if order == 0 {
				order = strings.Compare(a.Name, b.Name)
			}
			if reverse {
				return -order
			}
			return order
		})
		var got []Place
		count := 1 + rng.IntN(20)
		for after, pages := (*Place)(nil), 0; ; pages++ {
			l := Listing[int]{Sort: Sort{By: ColumnReady, Reverse: reverse, After: after}, Count: count}
			for i, p := range all {
				l.Offer(p.Name, new(Queue), &Judged{Ready: p.Value}, i)
			}
			page := []Place{}
			for {
				i, place, ok := l.TakeLast()
				if !ok {
					break
				}
				if place != all[i] {
					t.Fatalf("seed %d: %v was offered, and %v comes back", seed, all[i], place)
				}
				page = append(page, place)
			}
			slices.Reverse(page)
			if got = append(got, page...); !l.More() {
				break
			}
			if pages > len(all) || len(page) != count {
				t.Fatalf("seed %d: page %d has %d queues, want %d", seed, pages, len(page), count)
			}
			p, ok := ParseCursor(page[count-1].Cursor())
			if !ok || p != page[count-1] {
				t.Fatalf("seed %d: the cursor of %v is %q, which says %v", seed, page[count-1], page[count-1].Cursor(), p)
			}
			after = &p
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: pages of %d: %v, want %v", seed, count, got, want)
		}
	}
	for _, wrong := range []string{"", "0", "1", "1.", "x.YQ", "1.?", "1.YQ=="} {
		if p, ok := ParseCursor(wrong); ok {
			t.Errorf("%q is the cursor of %v", wrong, p)
		}
	}
}

func TestQueuesAreGroupedByEachOfTheirTroubles(t *testing.T) {
	var g TroubleGroups
	for i := range 20 {
		j := Judged{Ready: int64(i), Dead: int64(100 * (i % 3)), Since: int64(1000 - i)}
		j.Troubles.Set(LacksConsumer, i > 0)
		j.Troubles.Set(HasDead, j.Dead > 0)
		g.Add(fmt.Sprintf("q%02d", i), &j)
	}
	for at, want := range map[int]string{
		int(LacksConsumer): "{19 190 981 [{q19 19} {q18 18} {q17 17} {q16 16} {q15 15}]}",
		int(HasDead):       "{13 1900 981 [{q02 200} {q05 200} {q08 200} {q11 200} {q14 200}]}",
		int(IsPaused):      "{0 0 0 []}",
		Troubles:           "{19 2090 981 [{q17 217} {q14 214} {q11 211} {q08 208} {q05 205}]}",
	} {
		if got := fmt.Sprint(g[at]); got != want {
			t.Errorf("group %d: %s, want %s", at, got, want)
		}
	}
}

// What is more urgent ranks higher, whatever the number of messages, and each state that stops messages is a trouble
// unless it is that of a key, or one that ends by itself.
func TestTheMostUrgentTroubleComesFirst(t *testing.T) {
	for at := range Troubles - 1 {
		var more, less TroubleSet
		more.Set(Trouble(at), true)
		less.Set(Trouble(at+1), true)
		if more.rank(0) <= less.rank(1<<60) || less.rank(2) <= less.rank(1) {
			t.Errorf("%s ranks %d, %s with messages %d", Trouble(at), more.rank(0), Trouble(at+1), less.rank(1<<60))
		}
		more |= less
		if all := slices.Collect(more.All()); len(all) != 2 || all[0] != Trouble(at) {
			t.Errorf("%v has troubles %v", more, all)
		}
	}
	for s := range states.State(states.States) {
		var f states.Facts
		var set TroubleSet
		f.Set(s, true)
		set.Stopped(f)
		if want := s.Stops() != "" && s != states.Gathering || s == states.NoConsumer; (set != 0) != want {
			t.Errorf("%s: troubles %v", s, slices.Collect(set.All()))
		}
		for x := range set.All() {
			if x.String() != s.String() {
				t.Errorf("the trouble of %s is %s", s, x)
			}
		}
	}
}
