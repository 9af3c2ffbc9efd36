package rotation

import (
	"fmt"
	"testing"
)

func TestAListContinuesAfterWhatWasServedLast(t *testing.T) {
	var r Rotations[string]
	list := []string{"a", "b", "c"}
	var got []string
	for range 5 {
		turn := r.Of([]byte("abc"))
		e := list[turn.Start(list)%len(list)]
		turn.Served(e)
		got = append(got, e)
	}
	if fmt.Sprint(got) != "[a b c a b]" {
		t.Errorf("served %v", got)
	}
	if other := r.Of([]byte("ab")); other.Start(list) != 0 {
		t.Error("another list begins elsewhere")
	}
	if turn := r.Of([]byte("abc")); turn.Start([]string{"a", "c"}) != 0 {
		t.Error("a list without what was served last does not begin at its beginning")
	}
	var one *Rotation[string]
	if one.Served("a"); one.Start(list) != 0 {
		t.Error("a list of one has a position")
	}
}

func TestTheListsInMemoryAreBounded(t *testing.T) {
	var r Rotations[int]
	for i := range setsMax {
		r.Of([]byte(fmt.Sprint(i))).Served(7)
	}
	if r.Of([]byte("0")).Start([]int{7}) != 1 {
		t.Error("a list was forgotten below the bound")
	}
	r.Of([]byte("one more"))
	if len(r.bySet) != setsMax || len(r.sets) != setsMax || r.Of([]byte("0")).Start([]int{7}) != 0 {
		t.Errorf("%d lists are kept, the oldest among them", len(r.bySet))
	}
}
