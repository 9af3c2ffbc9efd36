package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/faisca/fila/engine"
)

// byHand returns a hub whose turns the test takes itself.
func byHand() *Hub {
	h := New(&source{})
	h.turns.running = true
	return h
}

func (h *Hub) turnAll() {
	for len(h.turns.clients) > 0 {
		h.turn()
	}
}

func acked(queues ...string) []engine.Event {
	events := make([]engine.Event, 0, len(queues))
	for _, q := range queues {
		events = append(events, engine.Event{Kind: engine.EventAcked, Queue: q})
	}
	return events
}

// channels returns the channels of the messages that a client got, each with its pattern before it.
func (c *client) channels() []string {
	var got []string
	lines := strings.Split(c.got.String(), "\r\n")
	for i, line := range lines {
		switch line {
		case "message":
			got = append(got, lines[i+2])
		case "pmessage":
			got = append(got, lines[i+2]+" "+lines[i+4])
		}
	}
	return got
}

// Ten thousand patterns of one client must not delay the events of the others.
func TestThePatternsOfOneClientDelayNoOther(t *testing.T) {
	h := byHand()
	many, named, pattern := &client{proto: 2}, &client{proto: 2}, &client{proto: 2}
	a, b, c := NewSubscriber(many), NewSubscriber(named), NewSubscriber(pattern)
	for i := range 10_000 {
		h.Subscribe(&a, Topic{Name: fmt.Sprintf("fila:*%s[%d]x:acked", strings.Repeat("?", 100), i), Pattern: true})
	}
	h.Subscribe(&b, Topic{Name: "fila:orders:acked"})
	h.Subscribe(&c, Topic{Name: "fila:orders:*", Pattern: true})
	const events = 2_000
	for range events {
		h.Publish(acked("orders"))
	}
	if got := len(named.channels()); got != events {
		t.Errorf("the subscriber by name has got %d of %d events before any pattern is matched", got, events)
	}
	turns := 0
	for len(pattern.channels()) < events {
		h.turn()
		if turns++; turns > events {
			t.Fatalf("after %d turns, the subscriber of one pattern has got %d of %d events", turns, len(pattern.channels()), events)
		}
	}
}

// A client with patterns gets its events in their order, those by name among them, and none of before its
// subscription or of after its end, however far the matching is behind.
func TestAQueuedClientGetsWhatItHasSubscribedToInOrder(t *testing.T) {
	h := byHand()
	got := &client{proto: 2}
	s := NewSubscriber(got)
	queues, mails, all := Topic{Name: "fila:q*", Pattern: true}, Topic{Name: "fila:mails:acked"}, Topic{Name: "fila:*", Pattern: true}
	h.Subscribe(&s, queues)
	h.Subscribe(&s, mails)
	h.Publish(acked("q1", "mails", "q2"))
	s.matchNext() // within the first event
	h.Subscribe(&s, all)
	h.Publish(acked("mails"))
	h.Unsubscribe(&s, queues)
	h.Subscribe(&s, queues)
	h.Publish(acked("q3"))
	h.Unsubscribe(&s, all)
	h.Unsubscribe(&s, queues)
	h.Publish(acked("mails", "q4"))
	h.turnAll()
	h.Publish(acked("mails"))
	want := []string{"fila:q* fila:q1:acked", "fila:mails:acked", "fila:mails:acked", "fila:mails:acked", "fila:mails:acked"}
	if !slices.Equal(got.channels(), want) {
		t.Errorf("got %q, want %q", got.channels(), want)
	}
	if len(h.queued) > 0 {
		t.Error("the client has no patterns any more, and a queue")
	}
}

func TestRemovedPatternsLeaveOthersMatchedOnce(t *testing.T) {
	h := byHand()
	got := &client{proto: 2}
	s := NewSubscriber(got)
	topic := func(i int) Topic { return Topic{Name: fmt.Sprintf("fila:q%s", strings.Repeat("*", i)), Pattern: true} }
	for i := range 8 {
		h.Subscribe(&s, topic(i+1))
	}
	h.Publish(acked("q"))
	for range 4 {
		s.matchNext()
	}
	for _, i := range []int{2, 7, 1} { // matched, not matched, matched
		h.Unsubscribe(&s, topic(i))
	}
	h.turnAll()
	seen := map[string]int{}
	for _, c := range got.channels() {
		seen[c]++
	}
	for i := range 8 {
		want := 1
		if i+1 == 7 {
			want = 0
		}
		if name := topic(i+1).Name + " fila:q:acked"; seen[name] != want {
			t.Errorf("%q: %d times, want %d", name, seen[name], want)
		}
	}
}

func TestAClientIsToldWhatItsQueueHadNoRoomFor(t *testing.T) {
	h := byHand()
	got := &client{proto: 2}
	s := NewSubscriber(got)
	h.Subscribe(&s, Topic{Name: "fila::lost"})
	h.Subscribe(&s, Topic{Name: "fila:orders:*", Pattern: true})
	for range queuedMax + 3 {
		h.Publish(acked("orders"))
	}
	h.turnAll()
	h.Publish(acked("orders"))
	h.turnAll()
	channels := got.channels()
	if len(channels) != queuedMax+2 || channels[queuedMax] != "fila::lost" || !strings.Contains(got.got.String(), `"count":3`) {
		t.Errorf("%d messages, the last %q", len(channels), channels[len(channels)-2:])
	}
}

func TestAClientThatLeavesLeavesNoQueue(t *testing.T) {
	h := byHand()
	got := &client{proto: 2}
	s := NewSubscriber(got)
	h.Subscribe(&s, Topic{Name: "fila:*", Pattern: true})
	h.Publish(acked("orders"))
	h.Leave(&s)
	h.turnAll()
	if len(h.queued) > 0 || got.got.Len() > 0 {
		t.Errorf("%d clients have queues; it got %q", len(h.queued), got.got.String())
	}
}

// What the dispatcher leaves is matched without another event.
func TestQueuesAreMatchedToTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(&source{})
		got := &client{proto: 2}
		s := NewSubscriber(got)
		h.Subscribe(&s, Topic{Name: "fila:orders:*", Pattern: true})
		const events = 1_000
		h.Publish(acked(slices.Repeat([]string{"orders"}, events)...))
		synctest.Wait()
		if n := len(got.channels()); n != events || len(h.turns.clients) > 0 || h.turns.running {
			t.Errorf("%d of %d events, %d queues left", n, events, len(h.turns.clients))
		}
	})
}
