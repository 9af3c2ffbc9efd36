package commands

import (
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"

	"github.com/faisca/fila/internal/hook"
)

func scriptStats() Spec {
	return Spec{
		Name: "STATS", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Returns how the hooks of a queue have fared since they were loaded or the broker started.",
		Reply: "An array of maps, one for each hook: " + hookStatsFields(&engine.ScriptInfo{}, &hook.Stats{}).names() + ". " +
			"state is closed while the hook is run, open while it is not as it has failed too often in a row, trial when the next call decides. " +
			"calls got a decision of the script's or its error, recalled of them without running it, as its decision was known; errors failed, limits of those for time or memory; skipped were answered by the safe decision without running it. " +
			"row counts errors since the last success, opened how often the state became open, trial_at says when it may be tried again. " +
			"latency is an array of maps, the buckets that are not empty: below_us (nil in the last) and calls; p50_us and p99_us are bounds of such buckets.",
		Flags:  []string{"readonly"},
		Access: Look,
		Args:   []Arg{{Name: "queue", Type: Key}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{`FILA.SCRIPT LOAD orders ON_FAILURE "function on_failure(msg) return { action = 'dlq' } end"`, "..."},
			{"FILA.SCRIPT STATS orders", "..."},
		},
		Parse: func(in *input) (call, error) { return &hookStats{hookList{queue: in.text("queue")}}, nil },
	}
}

type hookStats struct{ hookList }

// Render writes an array of maps. The figures are asked for here and not in the
// turn: a hook counts under a lock, which the loop must not wait for.
func (c *hookStats) Render(h *Handler, w *resp.Writer) error {
	maps := make([]fields, len(c.list))
	for i := range c.list {
		var s hook.Stats
		if hook := c.list[i].Hook; hook != nil {
			s = hook.Stats(h.cfg.Now())
		}
		maps[i] = *hookStatsFields(&c.list[i], &s)
	}
	writeMaps(w, maps)
	return nil
}

func hookStatsFields(info *engine.ScriptInfo, s *hook.Stats) *fields {
	var f fields
	f.hook(info)
	f.text("state", s.State.String())
	f.count("calls", s.Calls)
	f.count("errors", s.Errors)
	f.count("limits", s.Limits)
	f.count("skipped", s.Skipped)
	f.count("recalled", s.Recalled)
	f.number("row", int64(s.Row))
	f.count("opened", s.Opened)
	f.due("trial_at", s.TrialAt)
	f.optional("last_error", s.LastError)
	f.limit("last_line", uint64(max(s.LastLine, 0)))
	f.at("last_at", s.LastAt)
	f.micros("p50_us", s.Percentile(0.5))
	f.micros("p99_us", s.Percentile(0.99))
	f.micros("max_us", s.LatencyMax)
	f.micros("total_us", s.LatencyTotal)
	f.groups("latency", latencyBuckets(s))
	return &f
}

func (f *fields) micros(name string, d time.Duration) { f.number(name, d.Microseconds()) }

func latencyBuckets(s *hook.Stats) []fields {
	var list []fields
	for i, n := range s.Latency {
		if n == 0 {
			continue
		}
		var f fields
		if i == hook.LatencyBuckets-1 {
			f.optional("below_us", "")
		} else {
			f.micros("below_us", hook.LatencyBound(i))
		}
		f.count("calls", n)
		list = append(list, f)
	}
	return list
}
