package causes

import (
	"fmt"
	"testing"
	"time"
)

func TestAPageHasABoundedNumberOfQueuesInItsGroups(t *testing.T) {
	page := func(n int) (g Groups, refused bool) {
		for i := range n {
			refused = !g.Add(&Failure{Queue: fmt.Sprintf("queue %d", i)}) || refused
		}
		return g, refused
	}
	if g, refused := page(PairsMax); refused || len(g.List()[0].Queues) != PairsMax {
		t.Error("a group may have come from a thousand queues")
	}
	if _, refused := page(PairsMax + 1); !refused {
		t.Error("a page has more than a thousand queues in its groups")
	}
}

// A named cause gathers errors of any text, and does not take those of others that have the same text.
func TestANamedCauseIsAGroupOfItsOwn(t *testing.T) {
	at := time.Unix(0, 0)
	var g Groups
	for _, f := range []Failure{
		{Text: "status 503", Name: "provider down"}, {Text: "EOF", Name: "provider down"}, {Text: "status 503"}, {Text: "status 504"}, {Text: "provider down"},
	} {
		at = at.Add(time.Second)
		f.Queue, f.At = "q", at
		if !g.Add(&f) {
			t.Fatal("there is room")
		}
	}
	got := fmt.Sprint(g.List()[0].Cause, g.List()[0].Count, " ", g.List()[1].Cause, g.List()[1].Count)
	if got != "provider down3 status #2" { // an error that is the name of a cause is of it
		t.Error(got)
	}
	if !Has([]string{"x", "status #"}, "", "status 7") || Has([]string{"status #"}, "provider down", "status 7") || !Has(nil, "", "") {
		t.Error("a cause is that which was named, or else the group of the error")
	}
}
