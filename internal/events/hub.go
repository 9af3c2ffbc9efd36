// Package events delivers the engine's events to the clients that have subscribed to them, and the lines
// of MONITOR. A client that does not take what is delivered is disconnected by the bound of its
// connection; the hub never waits for one.
package events

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

// Hub holds the subscriptions of all clients: to channels, to patterns of channels, and to every command
// (MONITOR).
//
// A subscription is in force from the moment its confirmation is rendered until the confirmation of its
// end is: a client receives no event of a channel before the one or after the other.
//
// An event costs the dispatcher one look-up, and one step for each client with patterns: those are matched
// in turns (match.go).
type Hub struct {
	source Source
	taps   []func([]engine.Event) // set before the source makes events

	// monitoring is len(monitors): every command asks whether there is a monitor.
	monitoring atomic.Int32

	mu       sync.Mutex
	channels map[string]subscribers
	patterns map[string]subscribers
	queued   subscribers // those that get their events from a queue of their own
	turns    turns
	monitors subscribers
	nodes    map[*Subscriber]engine.EventKind // other nodes, with what their clients have subscribed to
	// interest counts, for each kind of event, the channels and patterns with subscribers that may carry
	// it; wanted and subscribed are what the source was asked for.
	interest           map[engine.EventKind]int
	tapped             engine.EventKind
	wanted, subscribed engine.EventKind
}

// Source makes the events.
type Source interface {
	// Want says which kinds of events are wanted, and which of these have subscribers here: others
	// are for taps, or for other nodes.
	Want(kinds, subscribed engine.EventKind)
}

// Receiver is the connection of a subscriber. Its methods may be called from any goroutine.
type Receiver interface {
	Proto() int
	PushAsync(b []byte) bool
}

// Subscriber is a client as the hub knows it. The lock of the hub guards its fields.
type Subscriber struct {
	to     Receiver
	topics map[Topic]*subscription
	left   bool // nothing is added any more
	queue  queue
}

// subscription is a topic of a subscriber.
type subscription struct {
	name  string
	since uint64 // the newest event before it
	at    int    // position of a pattern in the queue's
}

// NewSubscriber returns a subscriber without subscriptions.
func NewSubscriber(to Receiver) Subscriber { return Subscriber{to: to} }

type subscribers map[*Subscriber]struct{}

// Topic is a channel, or a pattern of channels.
type Topic struct {
	Name    string
	Pattern bool
}

// New returns a hub without subscribers.
func New(source Source) *Hub {
	return &Hub{
		source: source, channels: map[string]subscribers{}, patterns: map[string]subscribers{}, queued: subscribers{}, monitors: subscribers{},
		nodes: map[*Subscriber]engine.EventKind{}, interest: map[engine.EventKind]int{},
	}
}

// Tap passes events of the kinds to a function of this process as well, beside others that have
// subscribers. The function must not block. Tap must be called before the source makes events.
func (h *Hub) Tap(kinds engine.EventKind, to func([]engine.Event)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taps = append(h.taps, to)
	h.tapped |= kinds
	h.want()
}

// Subscribe adds a subscription. A client that has left gets none.
func (h *Hub) Subscribe(s *Subscriber, t Topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.left {
		return
	}
	all := h.all(t.Pattern)
	if all[t.Name] == nil {
		all[t.Name] = subscribers{}
		h.count(t, 1)
	}
	all[t.Name][s] = struct{}{}
	if s.topics == nil {
		s.topics = map[Topic]*subscription{}
	}
	if s.topics[t] == nil {
		added := &subscription{name: t.Name, since: h.turns.newest}
		s.topics[t] = added
		if t.Pattern {
			s.queue.add(added)
			h.queued[s] = struct{}{}
		}
	}
	h.want()
}

// Unsubscribe ends a subscription.
func (h *Hub) Unsubscribe(s *Subscriber, t Topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(s, t)
	h.want()
}

func (h *Hub) all(pattern bool) map[string]subscribers {
	if pattern {
		return h.patterns
	}
	return h.channels
}

// remove is called with the lock held.
func (h *Hub) remove(s *Subscriber, t Topic) {
	removed := s.topics[t]
	if removed == nil {
		return
	}
	delete(s.topics, t)
	if t.Pattern {
		s.queue.remove(removed)
		h.dequeue(s)
	}
	all := h.all(t.Pattern)
	delete(all[t.Name], s)
	if len(all[t.Name]) == 0 {
		delete(all, t.Name)
		h.count(t, -1)
	}
}

// Monitor delivers every command to the client from now on.
func (h *Hub) Monitor(s *Subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.left {
		h.monitors[s] = struct{}{}
		h.monitoring.Store(int32(len(h.monitors)))
	}
}

// Monitored reports whether any client monitors.
func (h *Hub) Monitored() bool { return h.monitoring.Load() > 0 }

// Monitors reports whether the client monitors.
func (h *Hub) Monitors(s *Subscriber) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, monitors := h.monitors[s]
	return monitors
}

// Every reports whether all that the client has subscribed to passes a test.
func (h *Hub) Every(s *Subscriber, passes func(Topic) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range s.topics {
		if !passes(t) {
			return false
		}
	}
	return true
}

// Reset ends all subscriptions of a client.
func (h *Hub) Reset(s *Subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(s)
}

// Leave is Reset for good.
func (h *Hub) Leave(s *Subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.left = true
	h.end(s)
}

func (h *Hub) end(s *Subscriber) {
	s.queue.clear()
	for t := range s.topics {
		h.remove(s, t)
	}
	h.dequeue(s)
	delete(h.nodes, s)
	h.want()
	delete(h.monitors, s)
	h.monitoring.Store(int32(len(h.monitors)))
}

// count takes note that a topic has its first subscriber (1), or none any more (-1).
func (h *Hub) count(t Topic, change int) {
	for _, kind := range engine.EventKinds() {
		suffix := ":" + kind.String()
		if t.Pattern && mayMatch(t.Name, channelPrefix, suffix) ||
			!t.Pattern && strings.HasPrefix(t.Name, channelPrefix) && strings.HasSuffix(t.Name, suffix) {
			h.interest[kind] += change
		}
	}
}

// want asks the source for the kinds of events that may have subscribers.
func (h *Hub) want() {
	var subscribed engine.EventKind
	for kind, n := range h.interest {
		if n > 0 {
			subscribed |= kind
		}
	}
	wanted := subscribed | h.tapped
	for _, kinds := range h.nodes {
		wanted |= kinds
	}
	if wanted != h.wanted || subscribed != h.subscribed {
		h.wanted, h.subscribed = wanted, subscribed
		h.source.Want(wanted, subscribed)
	}
}

// Forward passes events of the kinds on to another node, in place of earlier kinds. That node delivers
// them to its subscribers (Deliver). A client that has left gets none.
func (h *Hub) Forward(s *Subscriber, kinds engine.EventKind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.left {
		return
	}
	if h.nodes[s] = kinds; kinds == 0 {
		delete(h.nodes, s)
	}
	h.want()
}

// mayMatch reports whether a pattern might match a text that begins and ends as
// given. It errs to yes.
func mayMatch(pattern, prefix, suffix string) bool {
	const special = `*?[]\`
	head, tail := pattern, pattern
	if i := strings.IndexAny(pattern, special); i >= 0 {
		head, tail = pattern[:i], pattern[strings.LastIndexAny(pattern, special)+1:]
	}
	n, m := min(len(head), len(prefix)), min(len(tail), len(suffix))
	return head[:n] == prefix[:n] && tail[len(tail)-m:] == suffix[len(suffix)-m:]
}

// Publish delivers events to their subscribers. It is the engine's listener.
func (h *Hub) Publish(events []engine.Event) {
	for _, to := range h.taps {
		to(events)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		kind := events[i].Kind
		if kind&h.wanted == 0 && kind != engine.EventLost {
			continue // its last subscriber has gone
		}
		m := newMessage(&events[i])
		h.deliver(m)
		for node, kinds := range h.nodes {
			if kind&kinds != 0 || kind == engine.EventLost {
				node.to.PushAsync(m.rendered(node.to.Proto()))
			}
		}
	}
	h.matchQueued()
}

// Deliver delivers an event that another node has passed on.
func (h *Hub) Deliver(now time.Time, channel, payload []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deliver(&message{channel: string(channel), payload: bytes.Clone(payload), event: engine.Event{Time: now}})
	h.matchQueued()
}

// deliver delivers an event to the subscribers here, or puts it into their queues.
func (h *Hub) deliver(m *message) {
	h.turns.newest++
	m.number = h.turns.newest
	for s := range h.channels[m.channel] {
		if _, queued := h.queued[s]; !queued {
			s.to.PushAsync(m.rendered(s.to.Proto()))
		}
	}
	for s := range h.queued {
		h.enqueue(s, m)
	}
}

// message is an event as its subscribers get it. What they get is rendered when the first needs it.
type message struct {
	number  uint64
	channel string
	event   engine.Event
	payload []byte
	byName  [2][]byte // for those that have subscribed to the channel, in RESP2 and RESP3
}

func newMessage(ev *engine.Event) *message {
	return &message{channel: string(appendChannel(nil, ev)), event: *ev}
}

// rendered returns the message for those that have subscribed to its channel.
func (m *message) rendered(proto int) []byte {
	at := 0
	if proto == 3 {
		at = 1
	}
	b := &m.byName[at]
	if *b == nil {
		w := resp.Writer{Proto: proto}
		w.Push(3)
		w.BulkString("message")
		*b = m.finish(&w)
	}
	return *b
}

// matched returns the message for one that has subscribed to a pattern.
func (m *message) matched(pattern string, proto int) []byte {
	w := resp.Writer{Proto: proto}
	w.Push(4)
	w.BulkString("pmessage")
	w.BulkString(pattern)
	return m.finish(&w)
}

func (m *message) finish(w *resp.Writer) []byte {
	if m.payload == nil {
		m.payload = appendPayload(nil, &m.event)
	}
	w.BulkString(m.channel)
	w.Bulk(m.payload)
	return w.Take()
}

// Feed delivers a line to the clients that monitor.
func (h *Hub) Feed(line []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.monitors {
		s.to.PushAsync(line)
	}
}

// Channels returns the channels that have subscribers by name, sorted.
func (h *Hub) Channels() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.channels))
}

// Size returns how many channels and how many patterns have subscribers.
func (h *Hub) Size() (channels, patterns int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.channels), len(h.patterns)
}

// Subscribers returns how many clients have subscribed to a channel by its name.
func (h *Hub) Subscribers(channel []byte) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.channels[string(channel)])
}
