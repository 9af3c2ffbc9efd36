package commands

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/ops/telemetry"
	"github.com/faisca/fila/resp"
)

func latency() Spec {
	return container("LATENCY", "server", "2.8.13", "latency diagnostics commands", latencyDoctor(), latencyHistogram(), latencyHistory(), latencyLatest(), latencyReset())
}

// latencySpec is the common part of the subcommands of LATENCY.
func latencySpec(name, complexity, returns, summary string, args ...Arg) Spec {
	return Spec{
		Name: name, Group: "server", Since: "2.8.13", Complexity: complexity, Returns: returns, Summary: summary, Args: args,
		Flags: []string{"admin", "noscript", "loading", "stale"}, Quiet: true,
		Tips: []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"},
	}
}

func latencyDoctor() Spec {
	s := latencySpec("DOCTOR", "O(1)", "text", "Says what was slow and where to look.")
	s.Differs = "The advice is about Fila's events: turn, commit and command, and in a cluster confirm and apply."
	s.Examples = []Example{{"LATENCY DOCTOR", "..."}}
	s.Local = func(s *Session, _ *input, w *resp.Writer) error {
		w.Verbatim(latencyReport(s.handler.latency))
		return nil
	}
	return s
}

// latencyReport returns a report for people.
func latencyReport(l *telemetry.Latency) string {
	after := l.Threshold.Load()
	if after <= 0 {
		return `Nothing is watched. CONFIG SET latency-monitor-threshold <milliseconds> keeps what takes as long as that.` + "\n"
	}
	advice := map[string]string{
		telemetry.EventTurn: "All clients wait for a turn of the engine. Look for commands that touch much at once (LEASE with a large COUNT, " +
			"REDRIVE, QUEUE DELETE) and for a machine without processor time to spare.",
		telemetry.EventCommit: "The disk takes long to make a batch durable. Look at the disk and what else uses it; storage.sync says how much " +
			"durability a reply waits for.",
		telemetry.EventConfirm: "A leader waits for the answers of a majority before it hands out messages. Look at the network between the nodes, and for a node " +
			"without processor time to spare.",
		telemetry.EventApply:   "The store of this node takes long to take a batch of the replicated log. Look at its disk, and at FILA.CLUSTER STATUS: it may be behind.",
		telemetry.EventCommand: "A client waited so long for a reply, with its turn and its commit. SLOWLOG GET shows the commands.",
	}
	var b strings.Builder
	for _, name := range l.Names() {
		samples, longest := l.History(name)
		fmt.Fprintf(&b, "%s: %d ms or more in %d of the seconds kept, the longest %d ms, the last time at %s. %s\n", name, after, len(samples),
			longest.Milliseconds(), time.Unix(samples[len(samples)-1].At, 0).UTC().Format(time.RFC3339), advice[name])
	}
	if b.Len() == 0 {
		return fmt.Sprintf("Nothing has taken %d ms or longer.\n", after)
	}
	return b.String()
}

func latencyEventArg(optional bool) Arg {
	return Arg{Name: "event", Type: String, Optional: optional, Multiple: optional}
}

func latencyHistogram() Spec {
	s := latencySpec("HISTOGRAM", "O(N) where N is the number of commands", "map", "Returns how the time that commands took is distributed.",
		Arg{Name: "command", Type: String, Optional: true, Multiple: true})
	s.Since = "7.0.0"
	s.Differs = "Time is measured as for SLOWLOG. A count is of the calls that took less than the power of two microseconds before it."
	s.Reply = "A map from commands to maps: calls, histogram_usec (a map from microseconds to calls)."
	s.Examples = []Example{{"LATENCY HISTOGRAM fila.lease", "(empty array)"}}
	s.Room, s.Memory = tableRoom("command", histogramBytes), "the histogram of each command named, or of all"
	s.Local = func(s *Session, in *input, w *resp.Writer) error {
		var found []*entry
		h := s.handler
		for _, c := range h.histogramOf(in.List("command")) {
			if t := h.calls.Totals(c.Index); t.Calls > 0 {
				found = append(found, c)
			}
		}
		w.Map(len(found))
		for _, c := range found {
			t := h.calls.Totals(c.Index)
			w.BulkString(c.Name)
			writeHistogram(w, &t)
		}
		return nil
	}
	return s
}

// histogramOf returns the commands with these names, including all subcommands of a container;
// without names all commands.
func (h *Handler) histogramOf(names [][]byte) []*entry {
	if len(names) == 0 {
		return h.table.All
	}
	var out []*entry
	for _, name := range names {
		if c := h.table.Resolve(name); c != nil {
			out = append(append(out, c), c.Subs...)
		}
	}
	return out
}

func writeHistogram(w *resp.Writer, t *telemetry.Totals) {
	w.Map(2)
	w.BulkString("calls")
	w.Int(int64(t.Calls))
	w.BulkString("histogram_usec")
	steps := t.Steps()
	w.Map(len(steps))
	for _, s := range steps {
		w.Int(int64(s.Below))
		w.Int(int64(s.Calls))
	}
}

func latencyHistory() Spec {
	s := latencySpec("HISTORY", "O(1)", "array of array (integer, integer)", "Returns the history of an event: the longest of each second in which it took long.", latencyEventArg(false))
	s.Differs = "The events are turn, commit and command, and in a cluster confirm and apply."
	s.Reply = "An array of pairs: Unix time, milliseconds."
	s.Examples = []Example{{"LATENCY HISTORY commit", "(empty array)"}}
	s.Room, s.Memory = always(telemetry.SamplesMax*perWord), "10 KiB, all samples of an event"
	s.Local = func(s *Session, in *input, w *resp.Writer) error {
		samples, _ := s.handler.latency.History(string(in.Bytes("event")))
		w.Array(len(samples))
		for _, sample := range samples {
			w.Array(2)
			w.Int(sample.At)
			w.Int(sample.Took.Milliseconds())
		}
		return nil
	}
	return s
}

func latencyLatest() Spec {
	s := latencySpec("LATEST", "O(1)", "array of array (string, integer, integer, integer)", "Returns the newest of each event that took long.")
	s.Differs = "The events are turn (one pass of the engine), commit (one write to disk) and command."
	s.Reply = "An array of events: name, Unix time, milliseconds, milliseconds of the longest ever."
	s.Examples = []Example{{"LATENCY LATEST", "(empty array)"}}
	s.Local = func(s *Session, _ *input, w *resp.Writer) error {
		l := s.handler.latency
		names := l.Names()
		w.Array(len(names))
		for _, name := range names {
			samples, longest := l.History(name)
			last := telemetry.Sample{}
			if len(samples) > 0 { // none if it has been reset meanwhile
				last = samples[len(samples)-1]
			}
			w.Array(4)
			w.BulkString(name)
			w.Int(last.At)
			w.Int(last.Took.Milliseconds())
			w.Int(longest.Milliseconds())
		}
		return nil
	}
	return s
}

func latencyReset() Spec {
	s := latencySpec("RESET", "O(1)", "integer", "Forgets the events named, or all, and returns how many there were.", latencyEventArg(true))
	s.Tips = []string{"request_policy:all_nodes", "response_policy:all_succeeded"}
	s.Examples = []Example{{"LATENCY RESET", "(integer) 0"}}
	s.Local = func(s *Session, in *input, w *resp.Writer) error {
		w.Int(s.handler.latency.Reset(in.List("event")))
		return nil
	}
	return s
}

// usec formats a duration as INFO does.
func usec(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e3, 'f', 3, 64) }

func slowlogCommand() Spec {
	flags := []string{"admin", "loading", "stale"}
	return container("SLOWLOG", "server", "2.2.12", "slow log commands",
		Spec{
			Name: "GET", Group: "server", Since: "2.2.12", Complexity: "O(N) where N is the number of entries returned",
			Returns: "array of array (integer, integer, integer, array of string, string, string)",
			Summary: "Returns the newest entries of the slow log.",
			Differs: "The time runs from reading the command until its reply may be sent, including the commit, without waiting for messages.",
			Reply:   "An array of entries: number, Unix time, microseconds, arguments, client's address and name.",
			Flags:   flags, Quiet: true, Tips: []string{"request_policy:all_nodes", "nondeterministic_output"},
			Args:     []Arg{{Name: "count", Type: Integer, Optional: true, Min: -1}},
			Refuse:   refuseSlowCount,
			Examples: []Example{{"SLOWLOG GET 2", "(empty array)"}},
			Room:     slowRoom,
			Memory:   "6 KiB for each entry",
			Local: func(s *Session, in *input, w *resp.Writer) error {
				writeSlow(w, s.handler.slow.Newest(in.Integer("count", slowDefault)))
				return nil
			},
		},
		Spec{
			Name: "LEN", Group: "server", Since: "2.2.12", Complexity: "O(1)", Returns: "integer",
			Summary: "Returns the number of entries in the slow log.",
			Flags:   flags, Quiet: true, Tips: []string{"request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"},
			Examples: []Example{{"SLOWLOG LEN", "(integer) 0"}},
			Local: func(s *Session, _ *input, w *resp.Writer) error {
				w.Int(int64(s.handler.slow.Len()))
				return nil
			},
		},
		Spec{
			Name: "RESET", Group: "server", Since: "2.2.12", Complexity: "O(N) where N is the number of entries", Returns: "status",
			Summary: "Empties the slow log.",
			Flags:   flags, Tips: []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			Examples: []Example{{"SLOWLOG RESET", "OK"}},
			Local: func(s *Session, _ *input, w *resp.Writer) error {
				s.handler.slow.Reset()
				w.OK()
				return nil
			},
		},
	)
}

// slowDefault is the default count of SLOWLOG GET.
const slowDefault = 10

func refuseSlowCount([]byte, bool) error {
	return command.Refuse("ERR", "count should be greater than or equal to -1")
}

// Bounds of an entry in the slow log, as in Redis.
const (
	slowArgsMax  = 32
	slowBytesMax = 128
)

func writeSlow(w *resp.Writer, entries []telemetry.SlowCommand) {
	w.Array(len(entries))
	for i := range entries {
		e := &entries[i]
		w.Array(6)
		w.Int(e.ID)
		w.Int(e.At.Unix())
		w.Int(e.Took.Microseconds())
		writeTexts(w, e.Args)
		w.BulkString(e.Addr)
		w.BulkString(e.Name)
	}
}

// clipArgs returns the arguments as the slow log shows them: long ones are cut, secret ones hidden.
// args includes the name of the command.
func clipArgs(c *entry, args [][]byte) []string {
	shown := make([]string, 0, min(len(args), slowArgsMax))
	for i, a := range args {
		switch {
		case i >= c.Words && c.Spec.Secret:
			shown = append(shown, "(redacted)")
		case i == slowArgsMax-1 && len(args) > slowArgsMax:
			return append(shown, "... ("+strconv.Itoa(len(args)-i)+" more arguments)")
		case len(a) > slowBytesMax:
			shown = append(shown, string(a[:slowBytesMax])+"... ("+strconv.Itoa(len(a)-slowBytesMax)+" more bytes)")
		default:
			shown = append(shown, string(a))
		}
	}
	return shown
}
