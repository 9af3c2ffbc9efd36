package commands

import "github.com/faisca/fila/resp"

func reset() Spec {
	return Spec{
		Name: "RESET", Group: "connection", Since: "6.2.0", Complexity: "O(1)",
		Summary:   "Makes the connection as new: RESP2, no name, not authenticated.",
		Flags:     []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Examples:  []Example{{"RESET", "RESET"}},
		Immediate: true,
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if len(s.subs.topics) > 0 || s.subs.monitor {
				s.later = resetReply{s}
			}
			s.reset()
			w.Proto = s.proto
			w.Status("RESET")
			return nil
		},
	}
}

// resetReply answers the RESET of a client that listens: the end of that is in
// force, and behind everything that was heard, when it is rendered.
type resetReply struct{ session *Session }

// Ready implements resp.Reply.
func (resetReply) Ready() bool { return true }

// Append ends what the session listens to.
func (r resetReply) Append(w *resp.Writer) {
	r.session.handler.hub.reset(r.session)
	w.Pushes()
	w.Status("RESET")
}

// Drop has nothing to take back: the session leaves the hub with its connection.
func (resetReply) Drop() {}
