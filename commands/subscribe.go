package commands

import (
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/resp"
)

func subscribe() Spec {
	return subscriptionSpec("SUBSCRIBE", "channel", false, true, "Listens to channels: Fila's events, see docs/events.md.")
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

// subscriptionSpec describes one of the four: on begins to listen, else it ends.
func subscriptionSpec(name, arg string, pattern, on bool, summary string) Spec {
	kind, access := String, Listen
	if pattern {
		kind, access = Pattern, ListenPattern
	}
	if !on {
		access = ByFlags // nobody needs a right to stop listening
	}
	spec := Spec{
		Name: name, Group: pubsubGroup, Since: "2.0.0", Complexity: "O(N) where N is the number of names",
		Summary: summary, Flags: []string{"pubsub", "noscript", "loading", "stale"},
		Args:     []Arg{{Name: arg, Type: kind, Access: access, Optional: !on, Multiple: true}},
		Examples: []Example{{name + " fila:orders:dead", "..."}},
		Room:     confirmRoom(arg),
		Local: func(s *Session, in *input, _ *resp.Writer) error {
			return s.changeSubscriptions(in.list(arg), pattern, on)
		},
	}
	if on {
		spec.Differs = fmt.Sprintf("Channels carry Fila's own events alone. A name has at most %d bytes, a client at most %d subscriptions.",
			channelBytesMax, subscriptionsMax)
	}
	return spec
}

// pubsubGroup is the group of commands that listen.
const pubsubGroup = "pubsub"

// subscriptions is what a session listens to, as its own commands see it: in
// the order of the commands, while the hub follows as the replies leave.
type subscriptions struct {
	topics   map[topic]struct{}
	patterns int // among topics
	monitor  bool
}

// names returns the channels, or the patterns, in order.
func (u *subscriptions) names(pattern bool) []string {
	var names []string
	for t := range u.topics {
		if t.pattern == pattern {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	return names
}

func (u *subscriptions) change(t topic, on bool) {
	_, has := u.topics[t]
	switch {
	case has == on:
		return
	case on:
		if u.topics == nil {
			u.topics = map[topic]struct{}{}
		}
		u.topics[t] = struct{}{}
	default:
		delete(u.topics, t)
	}
	if t.pattern && on {
		u.patterns++
	} else if t.pattern {
		u.patterns--
	}
}

// changeSubscriptions begins or ends subscriptions. Ending without a name ends
// all of their kind, and is answered also if there is none.
func (s *Session) changeSubscriptions(args [][]byte, pattern, on bool) error {
	if on && len(s.subs.topics)+len(args) > subscriptionsMax {
		return &refusal{"ERR", fmt.Sprintf("too many subscriptions, a client may have %d", subscriptionsMax)}
	}
	r := &subscription{session: s, on: on, proto: s.proto}
	names := make([]string, 0, len(args))
	for _, a := range args {
		if len(a) > channelBytesMax {
			return &refusal{"ERR", fmt.Sprintf("a channel's name of %d bytes, the limit is %d", len(a), channelBytesMax)}
		}
		names = append(names, string(a))
	}
	if !on && len(args) == 0 {
		names = s.subs.names(pattern)
	}
	for _, name := range names {
		t := topic{name, pattern}
		s.subs.change(t, on)
		r.changes = append(r.changes, subscriptionChange{t, len(s.subs.topics)})
	}
	if len(r.changes) == 0 {
		r.changes = []subscriptionChange{{topic{"", pattern}, len(s.subs.topics)}}
		r.none = true
	}
	s.showSubscriptions()
	s.later = r
	return nil
}

// showSubscriptions makes the numbers known to CLIENT LIST.
func (s *Session) showSubscriptions() {
	s.listens.Store(&listening{channels: len(s.subs.topics) - s.subs.patterns, patterns: s.subs.patterns, monitor: s.subs.monitor})
}

// listening is how much a session listens to. It is never changed, only replaced.
type listening struct {
	channels, patterns int
	monitor            bool
}

// listening may be asked of another's session.
func (s *Session) listening() listening {
	if l := s.listens.Load(); l != nil {
		return *l
	}
	return listening{}
}

// clientType is the type of client that CLIENT LIST and KILL know, flags what it
// is marked with in the list.
func (l listening) clientType() (name, flags string) {
	name, flags = "normal", "N"
	if l.channels+l.patterns > 0 {
		name, flags = "pubsub", "P"
	}
	if l.monitor {
		flags = strings.Replace("O"+flags, "ON", "O", 1)
	}
	return name, flags
}

// subscription is the reply of the four commands: a confirmation for each name.
// What it confirms is in force from the moment it is rendered.
type subscription struct {
	session *Session
	on      bool
	none    bool // nothing was there to end
	proto   int
	changes []subscriptionChange
}

// subscriptionChange is a topic and the number of subscriptions after its change.
type subscriptionChange struct {
	topic topic
	count int
}

// Ready implements resp.Reply.
func (r *subscription) Ready() bool { return true }

// Append changes the subscriptions and confirms it.
func (r *subscription) Append(w *resp.Writer) {
	hub := r.session.handler.hub
	if !r.on {
		for _, c := range r.changes {
			hub.unsubscribe(r.session, c.topic)
		}
		w.Pushes() // what was on its way comes before the confirmation
	}
	w.Proto = r.proto
	for _, c := range r.changes {
		if r.on {
			hub.subscribe(r.session, c.topic)
		}
		word := "unsubscribe"
		if r.on {
			word = "subscribe"
		}
		if c.topic.pattern {
			word = "p" + word
		}
		w.Push(3)
		w.BulkString(word)
		if r.none {
			w.Null()
		} else {
			w.BulkString(c.topic.name)
		}
		w.Int(int64(c.count))
	}
}

// Drop has nothing to take back: the session leaves the hub with its connection.
func (r *subscription) Drop() {}

// whileListening refuses what a client must not send that listens in RESP2: it
// could not tell an event from a reply.
func (s *Session) whileListening(c *command) error {
	if s.proto != 2 || len(s.subs.topics) == 0 {
		return nil
	}
	switch c.name {
	case "subscribe", "psubscribe", "unsubscribe", "punsubscribe", "ping", "quit", "reset":
		return nil
	}
	return &refusal{"ERR", "Can't execute '" + c.name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"}
}
