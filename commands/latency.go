package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/resp"
)

func latency() Spec {
	return Spec{
		Name: "LATENCY", Group: "server", Since: "2.8.13", Complexity: "Depends on subcommand.",
		Summary:     "A container for latency diagnostics commands.",
		Subcommands: []Spec{latencyDoctor(), latencyGraph(), help("LATENCY"), latencyHistogram(), latencyHistory(), latencyLatest(), latencyReset()},
	}
}

// latencySpec is what the subcommands of LATENCY have in common.
func latencySpec(name, complexity, summary string, args ...Arg) Spec {
	return Spec{
		Name: name, Group: "server", Since: "2.8.13", Complexity: complexity, Summary: summary, Args: args,
		Flags: []string{"admin", "noscript", "loading", "stale"}, Quiet: true,
		Tips: []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"},
	}
}

func latencyDoctor() Spec {
	s := latencySpec("DOCTOR", "O(1)", "Says what was slow and where to look.")
	s.Differs = "The advice is about Fila's events: turn, commit and command."
	s.Examples = []Example{{"LATENCY DOCTOR", "..."}}
	s.Local = func(s *Session, _ *input, w *resp.Writer) error {
		w.Verbatim(s.handler.latency.doctor())
		return nil
	}
	return s
}

// doctor is a report for people.
func (l *Latency) doctor() string {
	after := l.after.Load()
	if after <= 0 {
		return `Nothing is watched. CONFIG SET latency-monitor-threshold <milliseconds> keeps what takes as long as that.` + "\n"
	}
	advice := map[string]string{
		latencyTurn: "Everybody waits for a turn of the engine. Look for commands that touch much at once (LEASE with a large COUNT, " +
			"REDRIVE, QUEUE DELETE) and for a machine without processor time to spare.",
		latencyCommit: "The disk takes long to make a batch durable. Look at the disk and who else uses it; storage.sync says how much " +
			"durability a reply waits for.",
		latencyCommand: "A client waited so long for a reply, with its turn and its commit. SLOWLOG GET shows the commands.",
	}
	var b strings.Builder
	for _, name := range l.names() {
		samples, longest := l.history(name)
		fmt.Fprintf(&b, "%s: %d seconds with one of at least %d ms, the longest took %d ms, the last one at %s. %s\n", name, len(samples), after,
			longest.Milliseconds(), time.Unix(samples[len(samples)-1].at, 0).UTC().Format(time.RFC3339), advice[name])
	}
	if b.Len() == 0 {
		return fmt.Sprintf("Nothing has taken %d ms or longer.\n", after)
	}
	return b.String()
}

func latencyEventArg(optional bool) Arg {
	return Arg{Name: "event", Type: String, Optional: optional, Multiple: optional}
}

func latencyGraph() Spec {
	s := latencySpec("GRAPH", "O(1)", "Draws the history of an event.", latencyEventArg(false))
	s.Differs = "The events are turn, commit and command; the drawing is Fila's own."
	s.Examples = []Example{{"LATENCY GRAPH commit", "(error) ERR No samples available for event 'commit'"}}
	s.Local = func(s *Session, in *input, w *resp.Writer) error {
		samples, _ := s.handler.latency.history(string(in.bytes("event")))
		if len(samples) == 0 {
			return &refusal{"ERR", "No samples available for event '" + clip(in.bytes("event")) + "'"}
		}
		w.Verbatim(drawLatency(string(in.bytes("event")), samples, s.handler.cfg.Now()))
		return nil
	}
	return s
}

// drawLatency draws the newest samples as bars, a line each.
func drawLatency(event string, samples []latencySample, now time.Time) string {
	const lines, width = 20, 50
	samples = samples[max(len(samples)-lines, 0):]
	longest := slices.MaxFunc(samples, func(a, b latencySample) int { return int(a.took - b.took) }).took
	var b strings.Builder
	b.WriteString(event + ", the newest last:")
	for _, s := range samples {
		bar := max(int(s.took*width/max(longest, 1)), 1)
		fmt.Fprintf(&b, "\n%8s ago %8d ms %s", now.Sub(time.Unix(s.at, 0)).Truncate(time.Second), s.took.Milliseconds(), strings.Repeat("#", bar))
	}
	b.WriteByte('\n')
	return b.String()
}

func latencyHistogram() Spec {
	s := latencySpec("HISTOGRAM", "O(N) where N is the number of commands", "Returns how the time that commands took is distributed.",
		Arg{Name: "command", Type: String, Optional: true, Multiple: true})
	s.Since = "7.0.0"
	s.Differs = "Time is measured as for SLOWLOG. A count is of the calls that took less than the power of two microseconds before it."
	s.Reply = "A map from commands to maps: calls, histogram_usec (a map from microseconds to calls)."
	s.Examples = []Example{{"LATENCY HISTOGRAM fila.lease", "(empty array)"}}
	s.Room = tableRoom("command", (*command).histogramBytes)
	s.Local = func(s *Session, in *input, w *resp.Writer) error {
		var found []*command
		h := s.handler
		for _, c := range h.histogramOf(in.list("command")) {
			if t := h.metrics.totals(c); t.calls > 0 {
				found = append(found, c)
			}
		}
		w.Map(len(found))
		for _, c := range found {
			t := h.metrics.totals(c)
			w.BulkString(c.name)
			t.write(w)
		}
		return nil
	}
	return s
}

// histogramOf returns the commands of those names, with all subcommands of a
// container; without names all there are.
func (h *Handler) histogramOf(names [][]byte) []*command {
	if len(names) == 0 {
		return h.table.all
	}
	var out []*command
	for _, name := range names {
		if c := h.table.resolve(name); c != nil {
			out = append(append(out, c), c.subOrder...)
		}
	}
	return out
}

// write writes the histogram by powers of two, from the first that counts any
// call to the one that counts all.
func (t *totals) write(w *resp.Writer) {
	type step struct{ below, calls uint64 }
	var steps []step
	seen, below := uint64(0), uint64(1)
	for i, n := range &t.took {
		seen += n
		if bucketEnd(i) != below {
			continue
		}
		if seen > 0 {
			steps = append(steps, step{below, seen})
		}
		if seen == t.calls {
			break
		}
		below *= 2
	}
	w.Map(2)
	w.BulkString("calls")
	w.Int(int64(t.calls)) //nolint:gosec // a count of events does not get there
	w.BulkString("histogram_usec")
	w.Map(len(steps))
	for _, s := range steps {
		w.Int(int64(s.below)) //nolint:gosec // some powers of two
		w.Int(int64(s.calls)) //nolint:gosec // a count of events does not get there
	}
}

func latencyHistory() Spec {
	s := latencySpec("HISTORY", "O(1)", "Returns the history of an event: the longest of each second in which it took long.", latencyEventArg(false))
	s.Differs = "The events are turn, commit and command."
	s.Reply = "An array of pairs: Unix time, milliseconds."
	s.Examples = []Example{{"LATENCY HISTORY commit", "(empty array)"}}
	s.Room = always(latencySamples * perWord)
	s.Local = func(s *Session, in *input, w *resp.Writer) error {
		samples, _ := s.handler.latency.history(string(in.bytes("event")))
		w.Array(len(samples))
		for _, sample := range samples {
			w.Array(2)
			w.Int(sample.at)
			w.Int(sample.took.Milliseconds())
		}
		return nil
	}
	return s
}

func latencyLatest() Spec {
	s := latencySpec("LATEST", "O(1)", "Returns the newest of each event that took long.")
	s.Differs = "The events are turn (one pass of the engine), commit (one write to disk) and command."
	s.Reply = "An array of events: name, Unix time, milliseconds, milliseconds of the longest ever."
	s.Examples = []Example{{"LATENCY LATEST", "(empty array)"}}
	s.Local = func(s *Session, _ *input, w *resp.Writer) error {
		l := s.handler.latency
		names := l.names()
		w.Array(len(names))
		for _, name := range names {
			samples, longest := l.history(name)
			last := latencySample{}
			if len(samples) > 0 { // or it was reset this very moment
				last = samples[len(samples)-1]
			}
			w.Array(4)
			w.BulkString(name)
			w.Int(last.at)
			w.Int(last.took.Milliseconds())
			w.Int(longest.Milliseconds())
		}
		return nil
	}
	return s
}

func latencyReset() Spec {
	s := latencySpec("RESET", "O(1)", "Forgets the events named, or all, and returns how many there were.", latencyEventArg(true))
	s.Tips = []string{"request_policy:all_nodes", "response_policy:all_succeeded"}
	s.Examples = []Example{{"LATENCY RESET", "(integer) 0"}}
	s.Local = func(s *Session, in *input, w *resp.Writer) error {
		w.Int(s.handler.latency.reset(in.list("event")))
		return nil
	}
	return s
}

// usec shows a duration as INFO does.
func usec(us uint64) string { return strconv.FormatUint(us, 10) + ".000" }
