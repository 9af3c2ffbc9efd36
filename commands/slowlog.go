package commands

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/resp"
)

func slowlogCommand() Spec {
	flags := []string{"admin", "loading", "stale"}
	return Spec{
		Name: "SLOWLOG", Group: "server", Since: "2.2.12", Complexity: "Depends on subcommand.",
		Summary: "A container for slow log commands.",
		Subcommands: []Spec{
			{
				Name: "GET", Group: "server", Since: "2.2.12", Complexity: "O(N) where N is the number of entries returned",
				Summary: "Returns the newest entries of the slow log.",
				Differs: "Time is from reading the command until its reply may leave, with the commit: what a client waits for. Waiting for messages does not count.",
				Reply:   "An array of entries: number, Unix time, microseconds, arguments, client's address and name.",
				Flags:   flags, Quiet: true, Tips: []string{"request_policy:all_nodes", "nondeterministic_output"},
				Args:     []Arg{{Name: "count", Type: Integer, Optional: true, Min: -1}},
				Refuse:   refuseSlowCount,
				Examples: []Example{{"SLOWLOG GET 2", "(empty array)"}},
				Room:     slowRoom,
				Local: func(s *Session, in *input, w *resp.Writer) error {
					writeSlow(w, s.handler.slow.newest(in.integer("count", slowDefault)))
					return nil
				},
			},
			help("SLOWLOG"),
			{
				Name: "LEN", Group: "server", Since: "2.2.12", Complexity: "O(1)",
				Summary: "Returns the number of entries in the slow log.",
				Flags:   flags, Quiet: true, Tips: []string{"request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"},
				Examples: []Example{{"SLOWLOG LEN", "(integer) 0"}},
				Local: func(s *Session, _ *input, w *resp.Writer) error {
					w.Int(int64(s.handler.slow.length()))
					return nil
				},
			},
			{
				Name: "RESET", Group: "server", Since: "2.2.12", Complexity: "O(N) where N is the number of entries",
				Summary: "Empties the slow log.",
				Flags:   flags, Tips: []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
				Examples: []Example{{"SLOWLOG RESET", "OK"}},
				Local: func(s *Session, _ *input, w *resp.Writer) error {
					s.handler.slow.reset()
					w.OK()
					return nil
				},
			},
		},
	}
}

// slowDefault is how many entries SLOWLOG GET returns unless told.
const slowDefault = 10

func refuseSlowCount([]byte, bool) error {
	return &refusal{"ERR", "count should be greater than or equal to -1"}
}

// slowLog keeps the newest commands that took long: at most max of them, each
// clipped, so its memory is bounded by some 4 KiB an entry.
type slowLog struct {
	after atomic.Int64 // microseconds; a command that takes as long is kept; negative: none is
	max   atomic.Int64 // entries

	mu      sync.Mutex
	entries []slowEntry // the newest last
	next    int64       // number of the next one; numbers are not used twice
}

type slowEntry struct {
	id         int64
	at         time.Time
	took       time.Duration
	args       []string
	addr, name string
}

// What is kept of a command, as in Redis.
const (
	slowArgsMax  = 32
	slowBytesMax = 128
)

// isSlow reports whether a command that took so long is to be kept.
func (l *slowLog) isSlow(took time.Duration) bool {
	after := l.after.Load()
	return after >= 0 && took.Microseconds() >= after
}

func (l *slowLog) add(e *slowEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = append(l.entries, *e)
	l.trim()
}

// trim drops what is too old. It moves entries only when as many have been
// dropped as are kept, so that adding takes the same time however long the log.
func (l *slowLog) trim() {
	if over := len(l.entries) - int(l.max.Load()); over > 0 {
		clear(l.entries[:over])
		l.entries = l.entries[over:]
	}
}

func (l *slowLog) newest(n int64) []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim()
	if n < 0 || n > int64(len(l.entries)) {
		n = int64(len(l.entries))
	}
	out := make([]slowEntry, 0, n)
	for i := range n {
		out = append(out, l.entries[int64(len(l.entries))-1-i])
	}
	return out
}

func (l *slowLog) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim()
	return len(l.entries)
}

func (l *slowLog) reset() {
	l.mu.Lock()
	l.entries = nil
	l.mu.Unlock()
}

func writeSlow(w *resp.Writer, entries []slowEntry) {
	w.Array(len(entries))
	for i := range entries {
		e := &entries[i]
		w.Array(6)
		w.Int(e.id)
		w.Int(e.at.Unix())
		w.Int(e.took.Microseconds())
		w.Array(len(e.args))
		for _, a := range e.args {
			w.BulkString(a)
		}
		w.BulkString(e.addr)
		w.BulkString(e.name)
	}
}

// clipArgs returns what may be shown of a command: not all of what is long, and
// nothing of what is secret. args has the name.
func clipArgs(c *command, args [][]byte) []string {
	shown := make([]string, 0, min(len(args), slowArgsMax))
	for i, a := range args {
		switch {
		case i >= c.words && c.spec.Secret:
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
