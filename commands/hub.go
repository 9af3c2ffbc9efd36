package commands

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"
)

// hub knows who listens: to which channels, to which patterns of channels, and
// to everything that is sent (MONITOR). It hands on what there is to hear; who
// does not take it is cut off by the connection's bound, never waited for.
//
// A subscription is in force here from the moment its confirmation is rendered
// until its end's is: so a client never hears of a channel before the one or
// after the other.
type hub struct {
	engine Engine

	// monitoring is len(monitors): whether there is anything to do is asked for
	// every command.
	monitoring atomic.Int32

	mu       sync.Mutex
	channels map[string]listeners
	patterns map[string]listeners
	has      map[*Session]map[topic]struct{}
	monitors listeners
	// interest counts the channels and patterns, as far as somebody listens, that
	// may carry events of each kind; wanted is what the engine was told of it.
	interest map[engine.EventKind]int
	wanted   engine.EventKind
}

type listeners map[*Session]struct{}

// topic is a channel, or a pattern of channels.
type topic struct {
	name    string
	pattern bool
}

func newHub(e Engine) *hub {
	return &hub{
		engine: e, channels: map[string]listeners{}, patterns: map[string]listeners{}, has: map[*Session]map[topic]struct{}{},
		monitors: listeners{}, interest: map[engine.EventKind]int{},
	}
}

// Bounds of what one client may make the server remember.
const (
	subscriptionsMax = 10_000
	channelBytesMax  = 1 << 10
)

// subscribe adds a session to those who hear of a topic. A session that has left
// is not added.
func (h *hub) subscribe(s *Session, t topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.left {
		return
	}
	all := h.all(t.pattern)
	if all[t.name] == nil {
		all[t.name] = listeners{}
		h.count(t, 1)
	}
	all[t.name][s] = struct{}{}
	if h.has[s] == nil {
		h.has[s] = map[topic]struct{}{}
	}
	h.has[s][t] = struct{}{}
	h.want()
}

// unsubscribe is the opposite.
func (h *hub) unsubscribe(s *Session, t topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(s, t)
	h.want()
}

func (h *hub) all(pattern bool) map[string]listeners {
	if pattern {
		return h.patterns
	}
	return h.channels
}

// forget is called with the lock held.
func (h *hub) forget(s *Session, t topic) {
	if _, listens := h.has[s][t]; !listens {
		return
	}
	delete(h.has[s], t)
	all := h.all(t.pattern)
	delete(all[t.name], s)
	if len(all[t.name]) == 0 {
		delete(all, t.name)
		h.count(t, -1)
	}
}

// monitor adds a session to those who see every command.
func (h *hub) monitor(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.left {
		h.monitors[s] = struct{}{}
		h.monitoring.Store(int32(len(h.monitors))) //nolint:gosec // at most as many as there are connections
	}
}

// mayHear tells whether the user may listen to all that the session listens to.
func (h *hub) mayHear(s *Session, u *acl.User, monitor int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range h.has[s] {
		if !u.MayListen(t.name, t.pattern) {
			return false
		}
	}
	_, monitors := h.monitors[s]
	return !monitors || u.MayRun(monitor)
}

// reset ends everything a session listens to.
func (h *hub) reset(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(s)
}

// leave is reset for good.
func (h *hub) leave(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.left = true
	h.end(s)
}

func (h *hub) end(s *Session) {
	for t := range h.has[s] {
		h.forget(s, t)
	}
	delete(h.has, s)
	h.want()
	delete(h.monitors, s)
	h.monitoring.Store(int32(len(h.monitors))) //nolint:gosec // at most as many as there are connections
}

// count notes that somebody listens to a topic now (1), or nobody does (-1).
func (h *hub) count(t topic, change int) {
	for _, kind := range engine.EventKinds() {
		suffix := ":" + kind.String()
		if t.pattern && mayMatch(t.name, channelPrefix, suffix) ||
			!t.pattern && strings.HasPrefix(t.name, channelPrefix) && strings.HasSuffix(t.name, suffix) {
			h.interest[kind] += change
		}
	}
}

// want tells the engine which events somebody may want to hear of.
func (h *hub) want() {
	var kinds engine.EventKind
	for kind, n := range h.interest {
		if n > 0 {
			kinds |= kind
		}
	}
	if kinds != h.wanted {
		h.wanted = kinds
		h.engine.Want(kinds)
	}
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

// publish tells the sessions that listen. It is the engine's listener.
func (h *hub) publish(events []engine.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var channel, payload []byte
	for i := range events {
		if events[i].Kind&h.wanted == 0 && events[i].Kind != engine.EventLost {
			continue // nobody listens any more
		}
		channel = appendChannel(channel[:0], &events[i])
		payload = payload[:0]
		hear := func(to listeners, pattern string) {
			if len(payload) == 0 {
				payload = appendPayload(payload, &events[i])
			}
			deliver(to, pattern, channel, payload)
		}
		if to := h.channels[string(channel)]; len(to) > 0 {
			hear(to, "")
		}
		for pattern, to := range h.patterns {
			if globMatch(pattern, string(channel)) {
				hear(to, pattern)
			}
		}
	}
}

// deliver renders a message once for each protocol that is spoken and hands it
// out.
func deliver(to listeners, pattern string, channel, payload []byte) {
	var rendered [2][]byte
	for s := range to {
		at := 0
		if s.identity.Load().proto == 3 {
			at = 1
		}
		if rendered[at] == nil {
			w := resp.Writer{Proto: 2 + at}
			if pattern == "" {
				w.Push(3)
				w.BulkString("message")
			} else {
				w.Push(4)
				w.BulkString("pmessage")
				w.BulkString(pattern)
			}
			w.Bulk(channel)
			w.Bulk(payload)
			rendered[at] = w.Take()
		}
		s.conn.PushAsync(rendered[at])
	}
}

// feed shows a line to those who monitor.
func (h *hub) feed(line []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.monitors {
		s.conn.PushAsync(line)
	}
}

// subscribed returns the channels that somebody listens to by name, in order.
func (h *hub) subscribed() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.channels))
}

// size returns how many channels and how many patterns somebody listens to.
func (h *hub) size() (channels, patterns int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.channels), len(h.patterns)
}

// subscribers returns how many listen to a channel by its name.
func (h *hub) subscribers(channel []byte) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.channels[string(channel)])
}
