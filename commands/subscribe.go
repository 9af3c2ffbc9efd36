package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/events"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/resp"
)

func subscribe() Spec {
	return subscriptionSpec("SUBSCRIBE", "channel", false, true, "Listens to channels: Fila's events, see docs/reference/events.md.")
}

func psubscribe() Spec {
	return subscriptionSpec("PSUBSCRIBE", "pattern", true, true, "Listens to all channels that match patterns.")
}

func unsubscribe() Spec {
	return subscriptionSpec("UNSUBSCRIBE", "channel", false, false, "Stops listening to channels, or to all that were named.")
}

func punsubscribe() Spec {
	return subscriptionSpec("PUNSUBSCRIBE", "pattern", true, false, "Stops listening to patterns, or to all of them.")
}

// subscriptionSpec describes one of the four commands; on is true for those that subscribe.
func subscriptionSpec(name, arg string, pattern, on bool, summary string) Spec {
	kind, access := String, Listen
	if pattern {
		kind, access = Pattern, ListenPattern
	}
	if !on {
		access = ByFlags // unsubscribing needs no right
	}
	spec := Spec{
		Name: name, Group: pubsubGroup, Since: "2.0.0", Complexity: "O(N) where N is the number of names", Returns: "push (string, (string or nil), integer)",
		Summary: summary, Flags: []string{"pubsub", "noscript", "loading", "stale", "no_multi"}, Differs: "Refused in MULTI.",
		Args:     []Arg{{Name: arg, Type: kind, Access: access, Optional: !on, Multiple: true}},
		Examples: []Example{{name + " fila:orders:dead", "..."}},
		Room:     confirmRoom(arg),
		Memory:   "120 bytes and the name for each channel or pattern",
		Local: func(s *Session, in *input, _ *resp.Writer) error {
			return s.changeSubscriptions(in.List(arg), pattern, on)
		},
	}
	if on {
		spec.Returns = "push (string, string, integer)"
		spec.Differs += fmt.Sprintf(" Channels carry Fila's own events alone. A name has at most %d bytes, a client at most %d subscriptions.",
			channelBytesMax, subscriptionsMax)
	}
	return spec
}

// Bounds of the subscriptions of one client.
const (
	subscriptionsMax = 10_000
	channelBytesMax  = 1 << 10
)

// receiver implements events.Receiver for a session.
type receiver Session

// Proto implements events.Receiver.
func (r *receiver) Proto() int { return r.prefs.identity.Load().proto }

// PushAsync implements events.Receiver.
func (r *receiver) PushAsync(b []byte) bool { return r.conn.PushAsync(b) }

// pubsubGroup is the group of the commands for subscriptions.
const pubsubGroup = "pubsub"

// subscriptions is the state of a session's subscriptions as of its last command. The hub
// follows when the replies are rendered.
type subscriptions struct {
	topics   map[events.Topic]struct{}
	patterns int // among topics
	monitor  bool
}

// subscriber is what a session has of subscriptions.
type subscriber struct {
	now    subscriptions
	at     events.Subscriber                  // what the hub knows it by
	counts atomic.Pointer[subscriptionCounts] // nil: none so far
}

// names returns the channels, or the patterns, in order.
func (u *subscriptions) names(pattern bool) []string {
	var names []string
	for t := range u.topics {
		if t.Pattern == pattern {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (u *subscriptions) change(t events.Topic, on bool) {
	_, has := u.topics[t]
	switch {
	case has == on:
		return
	case on:
		if u.topics == nil {
			u.topics = map[events.Topic]struct{}{}
		}
		u.topics[t] = struct{}{}
	default:
		delete(u.topics, t)
	}
	if t.Pattern && on {
		u.patterns++
	} else if t.Pattern {
		u.patterns--
	}
}

// changeSubscriptions subscribes or unsubscribes. Unsubscribing without names ends all
// subscriptions of that kind, and is confirmed even if there are none.
func (s *Session) changeSubscriptions(args [][]byte, pattern, on bool) error {
	if on && len(s.subs.now.topics)+len(args) > subscriptionsMax {
		return command.Refuse("ERR", fmt.Sprintf("too many subscriptions, a client may have %d", subscriptionsMax))
	}
	r := &subscription{session: s, on: on, proto: s.prefs.proto}
	names := make([]string, 0, len(args))
	for _, a := range args {
		if len(a) > channelBytesMax {
			return command.Refuse("ERR", fmt.Sprintf("a channel's name of %d bytes, the limit is %d", len(a), channelBytesMax))
		}
		names = append(names, string(a))
	}
	if !on && len(args) == 0 {
		names = s.subs.now.names(pattern)
	}
	for _, name := range names {
		t := events.Topic{Name: name, Pattern: pattern}
		s.subs.now.change(t, on)
		r.changes = append(r.changes, subscriptionChange{t, len(s.subs.now.topics)})
	}
	if len(r.changes) == 0 {
		r.changes = []subscriptionChange{{events.Topic{Pattern: pattern}, len(s.subs.now.topics)}}
		r.none = true
	}
	s.showSubscriptions()
	s.later = inTurn(r.confirm)
	return nil
}

// showSubscriptions publishes the numbers for CLIENT LIST.
func (s *Session) showSubscriptions() {
	s.subs.counts.Store(&subscriptionCounts{channels: len(s.subs.now.topics) - s.subs.now.patterns, patterns: s.subs.now.patterns, monitor: s.subs.now.monitor})
}

// subscriptionCounts is an immutable snapshot of a session's numbers of subscriptions.
type subscriptionCounts struct {
	channels, patterns int
	monitor            bool
}

// subscriptionCounts may be called from other sessions.
func (s *Session) subscriptionCounts() subscriptionCounts {
	if l := s.subs.counts.Load(); l != nil {
		return *l
	}
	return subscriptionCounts{}
}

// clientType returns the type of the client for CLIENT LIST and CLIENT KILL, and its flags in the
// list.
func (l subscriptionCounts) clientType() (name, flags string) {
	name, flags = "normal", "N"
	if l.channels+l.patterns > 0 {
		name, flags = "pubsub", "P"
	}
	if l.monitor {
		flags = strings.Replace("O"+flags, "ON", "O", 1)
	}
	return name, flags
}

// subscription is what the four commands reply: a confirmation for each name. A change takes
// effect in the hub when its confirmation is rendered.
type subscription struct {
	session *Session
	on      bool
	none    bool // there was no subscription to end
	proto   int
	changes []subscriptionChange
}

// subscriptionChange is a topic and the number of subscriptions after its change.
type subscriptionChange struct {
	topic events.Topic
	count int
}

// confirm changes the subscriptions and confirms it.
func (r *subscription) confirm(w *resp.Writer) {
	hub := r.session.hub()
	if !r.on {
		for _, c := range r.changes {
			hub.Unsubscribe(&r.session.subs.at, c.topic)
		}
		w.Pushes() // earlier events precede the confirmation
	}
	w.Proto = r.proto
	for _, c := range r.changes {
		if r.on {
			hub.Subscribe(&r.session.subs.at, c.topic)
		}
		word := "unsubscribe"
		if r.on {
			word = "subscribe"
		}
		if c.topic.Pattern {
			word = "p" + word
		}
		w.Push(3)
		w.BulkString(word)
		if r.none {
			w.Null()
		} else {
			w.BulkString(c.topic.Name)
		}
		w.Int(int64(c.count))
	}
}

// checkSubscribed refuses most commands of a RESP2 client with subscriptions, since it could not
// distinguish an event from a reply.
func (s *Session) checkSubscribed(c *entry) error {
	if s.prefs.proto != 2 || len(s.subs.now.topics) == 0 {
		return nil
	}
	switch c.Name {
	case "subscribe", "psubscribe", "unsubscribe", "punsubscribe", "ping", "quit", "reset":
		return nil
	}
	return command.Refuse("ERR", "Can't execute '"+c.Name+"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
}

func pubsub() Spec {
	leaf := func(name, returns, memory, summary string, args []Arg, example Example, room func(*Session, *input) int, local func(h *events.Hub, in *input, w *resp.Writer)) Spec {
		return Spec{
			Name: name, Group: pubsubGroup, Since: "2.8.0", Complexity: "O(N) where N is the number of channels", Returns: returns,
			Summary: summary, Flags: []string{"pubsub", "loading", "stale"}, Args: args, Examples: []Example{example}, Room: room, Memory: memory,
			Local: func(s *Session, in *input, w *resp.Writer) error {
				local(s.handler.hub, in, w)
				return nil
			},
		}
	}
	return container("PUBSUB", pubsubGroup, "2.8.0", "commands that show subscriptions",
		leaf("CHANNELS", "array of string", "64 bytes and the name for each channel", "Lists the channels that have subscribers by name.",
			[]Arg{{Name: "pattern", Type: Pattern, Optional: true}}, Example{"PUBSUB CHANNELS fila:*", "(empty array)"}, channelsRoom, pubsubChannels),
		leaf("NUMPAT", "integer", "", "Counts the patterns that are subscribed to.", nil, Example{"PUBSUB NUMPAT", "(integer) 0"}, nil,
			func(h *events.Hub, _ *input, w *resp.Writer) {
				_, n := h.Size()
				w.Int(int64(n))
			}),
		leaf("NUMSUB", "array of (string or integer)", "64 bytes for each channel named", "Counts the subscribers of each channel by name.",
			[]Arg{{Name: "channel", Type: String, Optional: true, Multiple: true}},
			Example{"PUBSUB NUMSUB fila:orders:dead", "1) \"fila:orders:dead\"\n2) (integer) 0"}, words("channel", perWord),
			func(h *events.Hub, in *input, w *resp.Writer) {
				names := in.List("channel")
				w.Array(2 * len(names))
				for _, name := range names {
					w.Bulk(name)
					w.Int(int64(h.Subscribers(name)))
				}
			}),
	)
}

func pubsubChannels(h *events.Hub, in *input, w *resp.Writer) {
	channels := h.Channels()
	n := 0
	for _, c := range channels {
		if !in.Has("pattern") || glob.Match(string(in.Bytes("pattern")), c) {
			channels[n] = c
			n++
		}
	}
	w.Array(n)
	for _, c := range channels[:n] {
		w.BulkString(c)
	}
}

func publish() Spec {
	return Spec{
		Name: "PUBLISH", Group: pubsubGroup, Since: "2.0.0", Complexity: "O(1)", Returns: "error",
		Summary: "Refused: channels carry Fila's own events.",
		Differs: "Always an error: a published message without subscribers would be lost. Use FILA.ENQUEUE.",
		Flags:   []string{"pubsub", "loading", "stale", "fast"},
		Args:    []Arg{{Name: "channel", Type: String}, {Name: "message", Type: String}},
		Examples: []Example{{"PUBLISH news hello",
			"(error) ERR channels carry Fila's own events only; FILA.ENQUEUE sends a message that is kept until it is acknowledged"}},
		Local: func(*Session, *input, *resp.Writer) error {
			return command.Refuse("ERR", "channels carry Fila's own events only; FILA.ENQUEUE sends a message that is kept until it is acknowledged")
		},
	}
}

func monitor() Spec {
	return Spec{
		Name: "MONITOR", Group: "server", Since: "1.0.0", Complexity: "O(1)", Returns: "status",
		Summary: "Streams each command that a client sends, when it is read.",
		Differs: fmt.Sprintf("Refused in MULTI. An argument is cut after %d bytes. A command is shown when it is read; behind a waiting lease, that is before it is executed.",
			monitorBytesMax),
		Flags:    []string{"admin", "noscript", "loading", "stale", "no_multi"},
		Examples: []Example{{"MONITOR", "OK"}},
		Local: func(s *Session, _ *input, _ *resp.Writer) error {
			s.subs.now.monitor = true
			s.showSubscriptions()
			s.later = inTurn(func(w *resp.Writer) { // the lines follow it
				s.handler.hub.Monitor(&s.subs.at)
				w.OK()
			})
			return nil
		},
	}
}

// monitorBytesMax is the number of bytes of an argument that MONITOR shows.
const monitorBytesMax = 1 << 10

// monitored sends a command to the clients that monitor. As in Redis, administrative commands
// and passwords are not shown.
func (s *Session) monitored(c *entry, args [][]byte) {
	if c.Spec.Has("admin") {
		return
	}
	now := s.handler.cfg.Now()
	b := make([]byte, 0, 128)
	b = append(b, '+')
	b = strconv.AppendInt(b, now.Unix(), 10)
	b = fmt.Appendf(b, ".%06d [0 %s]", now.Nanosecond()/1000, s.conn.RemoteAddr())
	for i, a := range args {
		b = append(b, ' ')
		if secret(c, args, i) {
			b = append(b, `"(redacted)"`...)
			continue
		}
		b = appendRepr(b, a[:min(len(a), monitorBytesMax)])
		if more := len(a) - monitorBytesMax; more > 0 {
			b = fmt.Appendf(b, "... (%d more bytes)", more)
		}
	}
	s.handler.hub.Feed(append(b, '\r', '\n'))
}

// secret reports whether argument i may be a password: every argument of a command that takes
// passwords, but for HELLO only those after AUTH.
func secret(c *entry, args [][]byte, i int) bool {
	if c.Spec.Name == "HELLO" {
		return i >= 2 && command.IsToken(args[i-1], "AUTH") || i >= 3 && command.IsToken(args[i-2], "AUTH")
	}
	return c.Spec.Secret && i >= c.Words
}

// appendRepr appends bytes in quotes, as redis-cli prints them.
func appendRepr(b, text []byte) []byte {
	b = append(b, '"')
	for _, c := range text {
		switch c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\a':
			b = append(b, '\\', 'a')
		case '\b':
			b = append(b, '\\', 'b')
		default:
			if c < ' ' || c > '~' {
				b = fmt.Appendf(b, `\x%02x`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}
