package events

import (
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
)

// client keeps what is delivered to it.
type client struct {
	proto int
	got   strings.Builder
}

func (c *client) Proto() int { return c.proto }

func (c *client) PushAsync(b []byte) bool {
	c.got.Write(b)
	return true
}

// source keeps what the hub wants.
type source struct{ kinds, subscribed engine.EventKind }

func (s *source) Want(kinds, subscribed engine.EventKind) { s.kinds, s.subscribed = kinds, subscribed }

func TestEventsReachTheirSubscribersInTheirProtocol(t *testing.T) {
	var from source
	h := New(&from)
	named, pattern := &client{proto: 2}, &client{proto: 3}
	a, b := NewSubscriber(named), NewSubscriber(pattern)
	h.Subscribe(&a, Topic{Name: "fila:orders:dead"})
	if from.kinds != engine.EventDead {
		t.Errorf("a subscriber of dead messages wants %v", from.kinds)
	}
	h.Subscribe(&b, Topic{Name: "fila:*:dead", Pattern: true})
	dead := []engine.Event{{Kind: engine.EventDead, Queue: "orders", Time: time.UnixMilli(7)}}
	h.Publish(dead)
	if got := named.got.String(); !strings.HasPrefix(got, "*3\r\n$7\r\nmessage\r\n$16\r\nfila:orders:dead\r\n") || !strings.Contains(got, `{"event":"dead","at":7,"queue":"orders"`) {
		t.Errorf("by name: %q", got)
	}
	if got := pattern.got.String(); !strings.HasPrefix(got, ">4\r\n$8\r\npmessage\r\n$11\r\nfila:*:dead\r\n") {
		t.Errorf("by pattern: %q", got)
	}
	named.got.Reset()
	h.Leave(&a)
	h.Subscribe(&a, Topic{Name: "fila:orders:dead"})
	h.Publish(dead)
	if named.got.Len() > 0 || h.Subscribers([]byte("fila:orders:dead")) != 0 {
		t.Errorf("after the client has left: %q", named.got.String())
	}
	h.Reset(&b)
	if channels, patterns := h.Size(); channels+patterns > 0 || from.kinds != 0 {
		t.Errorf("%d channels and %d patterns remain, and %v is wanted", channels, patterns, from.kinds)
	}
}

func TestOnlyMonitorsAreFed(t *testing.T) {
	h := New(&source{})
	monitor, other := &client{proto: 2}, &client{proto: 2}
	a, b := NewSubscriber(monitor), NewSubscriber(other)
	h.Subscribe(&b, Topic{Name: "fila:orders:dead"})
	if h.Monitored() {
		t.Error("there is no monitor yet")
	}
	h.Monitor(&a)
	h.Feed([]byte("+PING\r\n"))
	if !h.Monitored() || !h.Monitors(&a) || h.Monitors(&b) || monitor.got.String() != "+PING\r\n" || other.got.Len() > 0 {
		t.Errorf("the monitor got %q, the other client %q", monitor.got.String(), other.got.String())
	}
	h.Leave(&a)
	if h.Monitored() {
		t.Error("the monitor has left")
	}
}

func TestATapGetsEventsWithoutSubscribers(t *testing.T) {
	var from source
	h := New(&from)
	tapped := 0
	h.Tap(engine.EventDead|engine.EventFailed, func(events []engine.Event) { tapped += len(events) })
	if from.kinds != engine.EventDead|engine.EventFailed {
		t.Errorf("a tap wants %v", from.kinds)
	}
	c := &client{proto: 2}
	s := NewSubscriber(c)
	h.Subscribe(&s, Topic{Name: "fila:orders:dead"})
	h.Publish([]engine.Event{{Kind: engine.EventFailed, Queue: "orders"}, {Kind: engine.EventDead, Queue: "mails"}})
	h.Leave(&s)
	if tapped != 2 || c.got.Len() > 0 {
		t.Errorf("the tap got %d events, the subscriber %q", tapped, c.got.String())
	}
	if from.kinds != engine.EventDead|engine.EventFailed {
		t.Errorf("after the subscriber has left, %v is wanted", from.kinds)
	}
}

// A node gets the events of the kinds that it has asked for, once, and delivers them to its own
// subscribers with the same bytes.
func TestANodePassesEventsOnToAnother(t *testing.T) {
	var from, none source
	leader, other := New(&from), New(&none)
	link, named, pattern, here := &client{proto: 3}, &client{proto: 2}, &client{proto: 2}, &client{proto: 2}
	node, a, b, c := NewSubscriber(link), NewSubscriber(named), NewSubscriber(pattern), NewSubscriber(here)
	other.Subscribe(&a, Topic{Name: "fila:orders:dead"})
	other.Subscribe(&b, Topic{Name: "fila:*:dead", Pattern: true})
	leader.Subscribe(&c, Topic{Name: "fila:orders:dead"})
	leader.Tap(engine.EventFailed, func([]engine.Event) {})
	leader.Forward(&node, engine.EventDead|engine.EventAcked)
	if from.kinds != engine.EventDead|engine.EventAcked|engine.EventFailed || from.subscribed != engine.EventDead || none.subscribed != engine.EventDead {
		t.Errorf("wanted %v, of these %v for subscribers here; the other node wants %v", from.kinds, from.subscribed, none.subscribed)
	}
	if channels, patterns := leader.Size(); channels != 1 || patterns != 0 {
		t.Errorf("%d channels and %d patterns: another node is no subscriber", channels, patterns)
	}
	leader.Publish([]engine.Event{{Kind: engine.EventDead, Queue: "orders", Time: time.UnixMilli(7)}, {Kind: engine.EventFailed, Queue: "orders"}})
	const head = ">3\r\n$7\r\nmessage\r\n$16\r\nfila:orders:dead\r\n"
	got := link.got.String()
	if !strings.HasPrefix(got, head) || strings.Count(got, ">3") != 1 {
		t.Fatalf("the other node got %q", got)
	}
	_, payload, _ := strings.Cut(got[len(head):], "\r\n")
	other.Deliver(time.Unix(1_800_000_000, 0), []byte("fila:orders:dead"), []byte(strings.TrimSuffix(payload, "\r\n")))
	if named.got.String() != here.got.String() || !strings.Contains(pattern.got.String(), payload) {
		t.Errorf("delivered as %q and %q, by the leader as %q", named.got.String(), pattern.got.String(), here.got.String())
	}
	link.got.Reset()
	leader.Publish([]engine.Event{{Kind: engine.EventLost}})
	if !strings.Contains(link.got.String(), `"event":"lost"`) {
		t.Errorf("that events were lost is told as %q", link.got.String())
	}
	leader.Leave(&node)
	leader.Forward(&node, engine.EventAcked)
	if from.kinds != engine.EventDead|engine.EventFailed {
		t.Errorf("after the node has left, %v is wanted", from.kinds)
	}
}
