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
type source struct{ kinds engine.EventKind }

func (s *source) Want(kinds engine.EventKind) { s.kinds = kinds }

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
