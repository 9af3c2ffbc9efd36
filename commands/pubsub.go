package commands

import "github.com/faisca/fila/resp"

func pubsub() Spec {
	leaf := func(name, summary string, args []Arg, example Example, room func(*input) int, local func(h *hub, in *input, w *resp.Writer)) Spec {
		return Spec{
			Name: name, Group: pubsubGroup, Since: "2.8.0", Complexity: "O(N) where N is the number of channels",
			Summary: summary, Flags: []string{"pubsub", "loading", "stale"}, Args: args, Examples: []Example{example}, Room: room,
			Local: func(s *Session, in *input, w *resp.Writer) error {
				local(s.handler.hub, in, w)
				return nil
			},
		}
	}
	return Spec{
		Name: "PUBSUB", Group: pubsubGroup, Since: "2.8.0", Complexity: "Depends on subcommand.",
		Summary: "A container for commands that say who listens.",
		Subcommands: []Spec{
			leaf("CHANNELS", "Lists the channels that somebody has subscribed to by name.",
				[]Arg{{Name: "pattern", Type: Pattern, Optional: true}}, Example{"PUBSUB CHANNELS fila:*", "(empty array)"}, channelsRoom, pubsubChannels),
			help("PUBSUB"),
			leaf("NUMPAT", "Counts the patterns that are subscribed to.", nil, Example{"PUBSUB NUMPAT", "(integer) 0"}, nil,
				func(h *hub, _ *input, w *resp.Writer) {
					_, n := h.size()
					w.Int(int64(n))
				}),
			leaf("NUMSUB", "Counts who has subscribed to each channel by name.",
				[]Arg{{Name: "channel", Type: String, Optional: true, Multiple: true}},
				Example{"PUBSUB NUMSUB fila:orders:dead", "1) \"fila:orders:dead\"\n2) (integer) 0"}, words("channel", perWord),
				func(h *hub, in *input, w *resp.Writer) {
					names := in.list("channel")
					w.Array(2 * len(names))
					for _, name := range names {
						w.Bulk(name)
						w.Int(int64(h.subscribers(name)))
					}
				}),
		},
	}
}

func pubsubChannels(h *hub, in *input, w *resp.Writer) {
	channels := h.subscribed()
	n := 0
	for _, c := range channels {
		if !in.has("pattern") || globMatch(string(in.bytes("pattern")), c) {
			channels[n] = c
			n++
		}
	}
	w.Array(n)
	for _, c := range channels[:n] {
		w.BulkString(c)
	}
}
