package event

import (
	"strings"
	"testing"
)

func TestOnlyEventsWithSubscribersAreKept(t *testing.T) {
	var open Open
	open.Add(Event{Kind: Acked})
	open.Want(Acked | Dead)
	for _, kind := range Kinds() {
		open.Add(Event{Kind: kind})
	}
	if n := open.Len(); n != 2 || !open.Subscribed(Dead|Failed) || open.Subscribed(Failed) {
		t.Errorf("%d events of two kinds that are wanted", n)
	}
	if list := open.Take(); len(list) != 2 || list[0].Kind != Acked || list[1].Kind != Dead || open.Len() != 0 {
		t.Errorf("the events are %v, and %d are left", list, open.Len())
	}
}

func TestEveryKindHasABitAndAName(t *testing.T) {
	seen := map[string]bool{}
	var all Kind
	for i, kind := range Kinds() {
		name := kind.String()
		if kind != 1<<i || name == "" || seen[name] {
			t.Errorf("kind %d is %b and called %q", i, kind, name)
		}
		seen[name] = true
		all |= kind
	}
	if got := strings.Split(all.String(), "|"); len(got) != len(seen) {
		t.Errorf("a set of all is %q", got)
	}
}
